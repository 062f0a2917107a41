"""Clipping every micro-batch in one backward pass: ghost norms and book-keeping (Bu et al. 2022).

A registered layer runs as always, but its backward pass *records* the factors of each micro-batch's gradient (inputs
and output gradients) instead of adding up one gradient of its weights. The norm of each micro-batch's gradient
follows from the records and, once the clip factors are known, so does the sum of the clipped gradients; no
micro-batch's gradient needs memory of its own ("Differentially Private Optimization on Large Model at Small Cost",
algorithm 1; the norms are those of Goodfellow 2015 and Li et al. 2021).

This folder knows layers, rows and gradients. It must not import the hook, the ledger or anything about privacy: the
caller that reads the norms decides on clip and noise.
"""

from edp.per_example.layers import autograd_rule
from edp.per_example.recorder import GradientRecorder, layer_of_parameter
from edp.per_example.registry import (
    Rule,
    UnsupportedLayer,
    record_per_example,
    refuse_mixing_layers,
    register_layer,
)
from edp.per_example.rows import Rows

__all__ = [
    "GradientRecorder",
    "Rows",
    "Rule",
    "UnsupportedLayer",
    "autograd_rule",
    "layer_of_parameter",
    "record_per_example",
    "refuse_mixing_layers",
    "register_layer",
]
