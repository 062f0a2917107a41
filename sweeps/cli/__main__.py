"""`python -m sweeps.cli`."""

from sweeps.cli.app import main

main()
