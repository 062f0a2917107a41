"""`python -m sweeps.cli`."""

from sweeps.cli.main import main

main()
