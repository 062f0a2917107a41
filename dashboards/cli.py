"""`edp-sweep` as it is installed: the command line of `sweeps`, with the commands that show something to look at.

They are registered here, rather than there, so that imports go on pointing one way: dashboards -> sweeps.
"""

from __future__ import annotations

from sweeps.cli import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
