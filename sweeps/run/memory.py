"""A model held against the memory that there is, before anything starts.

What cannot fit would take its workers down, one after the other, after minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ray._common.utils import get_system_memory

from edp.spec import UserError
from trainables.spec import BERTSpec, CLCSpec, ModelSpec, TrialSpec

_FLOAT = 4
_ADDRESSES = 2**47
"""Bytes that a process can name: of a cluster's machines nobody knows more before it is asked."""


def check_memory(trials: Iterable[TrialSpec], workers: int) -> None:
    """Refuses trials whose weights alone, in every worker, are more than this machine has, or any.

    Raises:
        UserError: naming the sizes.
    """
    here = "RAY_ADDRESS" not in os.environ
    most, where = (get_system_memory(), "this machine") if here else (_ADDRESSES, "any machine")
    processes = workers if here else 1
    for trial in trials:
        needed = least_weights(trial.model) * _FLOAT * processes
        if needed > most:
            raise UserError(
                f"{_sizes(trial.model)}: the weights alone take {needed / 2**30:,.0f} GiB in {processes} worker(s), "
                f"and {where} has {most / 2**30:,.0f} GiB; allowed: a smaller model"
                + (", or fewer training.workers" if processes > 1 else "")
            )


def least_weights(model: ModelSpec) -> int:
    """How many weights a model has at least; 0 where its files say. What is small beside the rest is left out."""
    if isinstance(model, CLCSpec):
        h = model.hidden_size
        first, others = model.embedding_size + model.char_filters + h, 3 * h
        return 8 * h * (first + (model.layers - 1) * others) + 3 * model.char_filters * model.char_embedding_size
    adapters = 2 * (model.lora_rank or 0)
    return adapters + (12 * model.hidden_size**2 * model.random_layers if _starts_at_random(model) else 0)


def _starts_at_random(model: BERTSpec) -> bool:
    if model.pretrained is None:
        return True
    from trainables.encoders.pretrained import pretrained_folder  # transformers takes seconds to import

    return pretrained_folder(model.pretrained)[0] is None


def _sizes(model: ModelSpec) -> str:
    names = ("embedding_size", "char_filters", "char_embedding_size", "hidden_size", "layers", "lora_rank")
    found = {name: getattr(model, name, None) for name in names}
    return ", ".join(f"model.{name} = {value:g}" for name, value in found.items() if value is not None)
