"""Entry point of `python -m sweeps.commands`."""

from sweeps.commands.app import main

main()
