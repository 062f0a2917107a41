"""The methods of the benchmarks: each one is a function that takes a training step.

| method | what it is |
|---|---|
| `sgd` | the project's own baseline: DDP and Adam |
| `edp`, `edp:noise=paper+alpha=public`, … | the hook, one micro-batch a worker, with options of `edp` |
| `dpsgd` | the hook with micro-batches of one example |
| `plain` | SGD in a plain PyTorch loop over a plain PyTorch model (`sweeps.bench.plain`) |
| `opacus`, `opacus-ghost` | the peer, per-example and with ghost clipping (`sweeps.bench.peers`) |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import torch
from pydantic import ValidationError

from edp.spec import EDPSpec, UserError
from sweeps.errors import one_line
from trainables.encoding import EncodedCorpus
from trainables.models import build_model
from trainables.spec import TrialSpec
from trainables.training import Trainer

OURS = ("sgd", "edp", "dpsgd")
OTHERS = ("plain", "opacus", "opacus-ghost")
EDP_OPTIONS = ("noise", "alpha", "alpha_noise")
DEFAULT = (
    "sgd,edp,edp:noise=paper,edp:alpha=public,edp:alpha=private,edp:alpha=paper,edp:alpha_noise=per_layer,"
    "dpsgd,plain,opacus,opacus-ghost"
)
Step = Callable[[], None]


class CannotRun(RuntimeError):
    """A method cannot run a model; the text is the reason."""


def checked(methods: list[str]) -> list[str]:
    """The methods as they were asked for, `sgd` first: all others are compared with it.

    Raises:
        UserError: for one that is not known.
    """
    for method in methods:
        name, _, options = method.partition(":")
        if name not in OURS + OTHERS or (options and name != "edp"):
            raise UserError(
                f"--methods = {method!r}: allowed: {', '.join(OURS + OTHERS)}, and edp:KEY=VALUE[+KEY=VALUE…] "
                f"with {', '.join(EDP_OPTIONS)}"
            )
        edp_spec(method)
    return ["sgd", *dict.fromkeys(method for method in methods if method != "sgd")]


def edp_spec(method: str) -> EDPSpec:
    """The mechanism of `edp:…`, and of every other method that adds noise."""
    settings = {}
    for option in filter(None, method.partition(":")[2].split("+")):
        key, _, value = option.partition("=")
        if key not in EDP_OPTIONS:
            raise UserError(f"--methods = {method!r}: unknown option {key!r}; allowed: {', '.join(EDP_OPTIONS)}")
        settings[key] = value
    try:
        return EDPSpec.model_validate({"C": 0.5, "z0": 1.0, **settings})
    except ValidationError as error:
        raise UserError(f"--methods = {method!r}: {one_line(error)}") from None


def stepper(method: str, spec: TrialSpec, corpus: EncodedCorpus, device: torch.device) -> Step:
    """Builds model, optimiser and hook of a method in this worker, and gives the function that takes its next step.

    Raises:
        CannotRun: with the reason.
    """
    if method == "plain":
        from sweeps.bench.plain import plain_stepper

        return plain_stepper(spec, corpus, device)
    if method.startswith("opacus"):
        from sweeps.bench.peers import opacus_stepper

        return opacus_stepper(spec, corpus, device, ghost=method == "opacus-ghost")
    training = spec.training.model_copy(update={"method": method.partition(":")[0]})
    own = spec.model_copy(update={"training": training, "edp": edp_spec(method)})
    model = build_model(spec.model, corpus.labels, seed=0, vocabulary_size=corpus.vocabulary_size).to(device)
    trainer = Trainer(model, corpus, own, device)
    trainer.ddp.train()
    steps = (dealt for epoch in count() for dealt in trainer.steps_of(epoch))

    def step() -> None:
        trainer.train_step(next(steps))

    return step


def batches(spec: TrialSpec, corpus: EncodedCorpus, rank: int, world: int) -> Iterator[np.ndarray]:
    """Indices of this worker's share of each step, for the methods that are not ours: shuffled epochs without end."""
    size = corpus.size("train")
    for epoch in count():
        order = np.random.default_rng([0, epoch]).permutation(size)
        for start in range(0, size - spec.training.batch_size + 1, spec.training.batch_size):
            share = spec.training.batch_size // world
            yield order[start + rank * share : start + (rank + 1) * share]
