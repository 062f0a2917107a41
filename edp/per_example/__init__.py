"""Clipping every micro-batch in one backward pass: ghost norms with book-keeping.

A layer that is taught runs as always, but its backward pass, instead of adding up a gradient of its weights, leaves a
*note* in the book: what the gradient of each micro-batch would be made of. From the notes follow the norm of each
micro-batch's gradient and, once the clips are known, the sum of the clipped gradients, without a gradient of any
micro-batch ever standing in memory (Bu et al. 2022, "Differentially Private Optimization on Large Model at Small
Cost", algorithm 1; the norms are those of Goodfellow 2015 and Li et al. 2021).

This room knows layers, rows and gradients. It must not import the hook, the ledger or anything about privacy: what a
clip is, and what noise is added, is decided by whoever reads the squares.
"""

from edp.per_example.layers import instantiated
from edp.per_example.recorder import Book
from edp.per_example.registry import Rule, UntaughtLayer, keep_book, teach
from edp.per_example.rows import Rows

__all__ = ["Book", "Rows", "Rule", "UntaughtLayer", "instantiated", "keep_book", "teach"]
