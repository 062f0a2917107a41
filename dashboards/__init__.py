"""The Pareto page, the report of a choice, and their server. Nothing imports this package.

It reads sweeps; the page writes picks alone.
"""

from edp import __version__ as __version__
