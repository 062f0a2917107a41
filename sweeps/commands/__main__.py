"""`python -m sweeps.commands`."""

from sweeps.commands.main import main

main()
