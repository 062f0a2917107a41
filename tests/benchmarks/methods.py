"""The methods of the benchmarks, and the specs and corpora that they train.

| method | meaning |
|---|---|
| `sgd`, `sgd:precision=bfloat16`, … | this project's baseline: DDP and Adam, with options of `training` |
| `edp`, `edp:noise=paper+alpha=public`, … | the hook, one micro-batch per worker; options of `edp` and `training` |
| `dpsgd` | the hook with micro-batches of one example, clipped in one pass |
| `dpsgd_loop` | the same, one example at a time |
| `plain` | SGD in a plain PyTorch loop over a plain PyTorch model (`tests.benchmarks.peers`) |
| `opacus`, `opacus-ghost` | the peer, per-example and with ghost clipping (`tests.benchmarks.peers`) |

Our methods also train a part of the model (`model.trainable`): `dpsgd:trainable=heads` is compared with
`sgd:trainable=heads`.
"""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import torch
from pydantic import BaseModel, ValidationError

from edp.spec import EDPSpec, UserError
from sweeps.text.errors import one_line
from tests.benchmarks.peers import CannotRun, Step, opacus_stepper, plain_stepper
from trainables.config import BERTSpec, CLCSpec, TrainingSpec, TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.models import build_model
from trainables.training.trainer import Trainer

MODELS = ("clc", "bert")
# The time of a step does not depend on the source of word vectors and pieces, so small public corpora suffice.
_PUBLIC = {"name": "health", "utterances": 2000}
_OTHER = {"name": "video", "utterances": 2000}
OURS = ("sgd", "edp", "dpsgd", "dpsgd_loop")
OTHERS = ("plain", "opacus", "opacus-ghost")
EDP_OPTIONS = ("noise", "alpha", "alpha_noise")
TRAINING_OPTIONS = ("precision", "memory_batch", "gradient_checkpointing")
MODEL_OPTIONS = ("trainable",)
OPTIONS = {
    "sgd": TRAINING_OPTIONS + MODEL_OPTIONS,
    **dict.fromkeys(("edp", "dpsgd", "dpsgd_loop"), EDP_OPTIONS + TRAINING_OPTIONS + MODEL_OPTIONS),
}
PARTS = get_args(BERTSpec.model_fields["trainable"].annotation)
DEFAULT = (
    "sgd,edp,edp:noise=paper,edp:alpha=public,edp:alpha=private,edp:alpha=paper,edp:alpha_noise=per_layer,"
    "sgd:precision=bfloat16,dpsgd,dpsgd_loop,dpsgd:trainable=heads,dpsgd:trainable=lora,"
    "plain,opacus,opacus-ghost"
)
Spec = TypeVar("Spec", bound=BaseModel)


def checked(methods: list[str]) -> list[str]:
    """Return the methods without duplicates, each after the one that it is compared with, `sgd` first.

    Raises:
        UserError: for an unknown method or option.
    """
    for method in methods:
        name, _, options = method.partition(":")
        if name not in OURS + OTHERS or (options and name not in OPTIONS):
            raise UserError(
                f"--methods = {method!r}: allowed: {', '.join(OURS + OTHERS)}; sgd:KEY=VALUE[+KEY=VALUE…] "
                f"with {', '.join(OPTIONS['sgd'])}, and edp:…, dpsgd:…, dpsgd_loop:… also with {', '.join(EDP_OPTIONS)}"
            )
        edp_spec(method)
        training_spec(method, TrainingSpec())
        part = _options(method).get("trainable", PARTS[0])
        if part not in PARTS:
            raise UserError(f"--methods = {method!r}: trainable = {part!r}; allowed: {', '.join(PARTS)}")
    return list(dict.fromkeys(["sgd", *(name for method in methods for name in (compared_with(method), method))]))


def compared_with(method: str) -> str:
    """Return the method that a method's time is divided by: plain SGD of the same part of the model."""
    part = _options(method).get("trainable")
    return "sgd" if part is None else f"sgd:trainable={part}"


def _options(method: str) -> dict[str, str]:
    """Parse the `key=value` options after `method:`."""
    pairs = (option.partition("=") for option in filter(None, method.partition(":")[2].split("+")))
    return {key: value for key, _, value in pairs}


def edp_spec(method: str) -> EDPSpec:
    """Return the settings of the mechanism: those of `edp:…`, and the defaults for every other method."""
    return _validated(EDPSpec, {"C": 0.5, "z0": 1.0}, method, EDP_OPTIONS)


def training_spec(method: str, training: TrainingSpec) -> TrainingSpec:
    """Return `training` with a method's options."""
    name = method.partition(":")[0]
    settings = (training.without_privacy() if name == "sgd" else training).model_dump()
    if name == "dpsgd_loop":
        settings |= {"method": "dpsgd", "memory_batch": 1}
    elif name in OURS:
        settings["method"] = name
    return _validated(TrainingSpec, settings, method, TRAINING_OPTIONS)


def _validated(kind: type[Spec], settings: dict[str, Any], method: str, taken: tuple[str, ...]) -> Spec:
    """Return a spec of `settings` and of those options of `method` that are in `taken`."""
    name = method.partition(":")[0]
    for key, value in _options(method).items():
        if key not in OPTIONS[name]:
            raise UserError(f"--methods = {method!r}: unknown option {key!r}; allowed: {', '.join(OPTIONS[name])}")
        if key in taken:
            settings[key] = value
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise UserError(f"--methods = {method!r}: {one_line(error)}") from None


def bench_spec(model: str, corpus: dict[str, Any], *, batch_size: int, workers: int, **sizes: int) -> TrialSpec:
    """Return the spec of a model at the paper's sizes (or `sizes`), with one micro-batch per worker.

    Raises:
        UserError: for invalid settings.
    """
    public = _OTHER if corpus["name"] == _PUBLIC["name"] else _PUBLIC
    kinds: dict[str, dict[str, Any]] = {
        "clc": {"kind": "clc", "embeddings": {"corpus": public, "epochs": 1}},
        "bert": {"kind": "bert", "pretrained": None, "vocabulary": public},
    }
    settings = {
        "corpus": corpus,
        "model": {**kinds[model], **sizes},
        "shadow": {"corpus": public},
        "training": {"batch_size": batch_size, "micro_batches": workers, "workers": workers},
    }
    try:
        return TrialSpec.model_validate(settings)
    except ValidationError as error:
        raise UserError(one_line(error)) from None


def encoded(spec: TrialSpec, folder: Path) -> EncodedCorpus:
    """Return a spec's encoded corpus in `folder`; encode it if it is missing."""
    if (folder / "meta.json").is_file():
        return EncodedCorpus.open(folder)
    return encode(load_corpus(spec.corpus), spec.model, folder)


def stepper(method: str, spec: TrialSpec, corpus: EncodedCorpus, device: torch.device) -> Step:
    """Build a method's model, optimiser and hook in this worker; return a function that takes its next step.

    Raises:
        CannotRun: with the reason.
    """
    if method == "plain":
        return plain_stepper(spec, corpus, device)
    if method.startswith("opacus"):
        return opacus_stepper(spec, corpus, device, ghost=method == "opacus-ghost")
    part = _options(method).get("trainable", "all")
    if isinstance(spec.model, CLCSpec) and part not in ("all", "heads"):
        raise CannotRun("CLC is trained as a whole, or only its heads")
    of_part = {"model": spec.model.model_copy(update={"trainable": part})}
    trained = {"training": training_spec(method, spec.training), "edp": edp_spec(method)}
    own = spec.model_copy(update=of_part | trained)
    model = build_model(own.model, corpus.labels, seed=0, vocabulary_size=corpus.vocabulary_size).to(device)
    trainer = Trainer(model, corpus, own, device)
    trainer.ddp.train()
    whole = trainer.sampler.units // trainer.sampler.batch_size
    steps = (sharded for epoch in count() for sharded in islice(trainer.steps_of(epoch), whole))

    def step() -> None:
        trainer.train_step(next(steps))

    return step
