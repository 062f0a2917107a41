"""The settings of training, with privacy and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from edp.spec import Frozen, UserError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]
"""`auto` is bfloat16 if the device multiplies it in hardware, else float32: others are some fifty times slower
with it (an EPYC with only AVX2: 1.3 against 63 GFLOP/s)."""

MAX_EPOCHS = 100_000
"""Largest number of epochs: each has an entry in the ledger, which is priced as a whole."""


class NonPrivateSpec(Frozen):
    """The settings of training without privacy that differ from the private ones.

    Training without a clip diverges at a learning rate that suits clipped gradients of full batches. A null setting is
    the private one, or, with `model.features`, that of `NON_PRIVATE_HEADS`.
    """

    epochs: Annotated[int | None, Field(ge=1, le=MAX_EPOCHS)] = None
    """epochs; null: the private setting, 15 for heads"""
    batch_size: Annotated[int | None, Field(ge=1)] = None
    """utterances per step; null: the private setting, 64 for heads"""
    optimizer: Literal["adam", "adamw", "sgd"] | None = None
    """optimiser, with its default settings; null: the private setting, adam for heads"""
    learning_rate: Annotated[float | None, Field(gt=0)] = None
    """learning rate; null: the private setting, 0.03 for heads"""


NON_PRIVATE_HEADS: dict[str, Any] = {
    **{"epochs": 15, "batch_size": 64, "optimizer": "adam", "learning_rate": 3e-2},
    **{"learning_rate_decay": "none", "average": None, "validate_every": 1},
}
"""The settings of training without privacy that differ for heads on the states of a frozen encoder."""


class TrainingSpec(Frozen):
    """The settings of training. `micro_batches` belongs to the mechanism, `workers` to the hardware."""

    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {
        "momentum": ("optimizer", "momentum"),
        "weight_decay": ("optimizer", "adamw"),
        "decay_epochs": ("learning_rate_decay", "linear"),
    }

    method: Literal["sgd", "edp", "dpsgd"] = "edp"
    """sgd: no privacy; edp: clip each micro-batch; dpsgd: clip each utterance, or each user"""
    epochs: Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = 15
    """passes over the training split"""
    batch_size: Annotated[int, Field(ge=1)] | Literal["full"] = 64
    """utterances per step of all workers together, or users with edp.unit = user; full: the whole training split"""
    micro_batches: Annotated[int, Field(ge=1)] = 8
    """micro-batches per step, each clipped once; the paper's N"""
    workers: Annotated[int, Field(ge=1)] = 8
    """processes that train; a divisor of micro_batches"""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    """learning rate of the first epoch"""
    optimizer: Literal["adam", "adamw", "sgd", "momentum"] = "adam"
    """optimiser, for private and other gradients alike; momentum: heavy-ball"""
    momentum: Annotated[float | None, Field(ge=0, lt=1)] = None
    """with optimizer = momentum: v = momentum v + g, w -= learning_rate v; null: 0.9"""
    weight_decay: Annotated[float | None, Field(ge=0)] = None
    """with optimizer = adamw: a step subtracts learning_rate weight_decay w from w; null: 0.01"""
    average: Annotated[float | None, Field(ge=0, lt=1)] = None
    """decay of an exponential moving average of the weights, which is measured and released instead of them and costs
    no epsilon; 0 or null: the weights themselves"""
    learning_rate_decay: Literal["none", "linear"] = "none"
    """linear: epoch t of T, counted from 0, has the rate learning_rate (1 - t/T)"""
    decay_epochs: Annotated[int | None, Field(ge=1)] = None
    """with learning_rate_decay = linear: T, if not `epochs`; null: epochs"""
    precision: Precision = "float32"
    """precision of matrix products in training; auto: bfloat16 if the device multiplies it in hardware (other
    processors are some fifty times slower with it). Weights, gradients, clip and noise are always float32. Scores in
    bfloat16 have three digits: heads with a small clip and a large learning rate need float32"""
    memory_batch: Annotated[int | None, Field(ge=1)] = None
    """maximum of utterances that a worker processes at once, in order of length; null: as many as fit into memory. Does
    not change results"""
    gradient_checkpointing: bool = False
    """keep only the inputs of a trained encoder's layers, and run each layer again in the backward pass: less memory, a
    fifth to a third more time, the same results"""
    validate_every: Annotated[int, Field(ge=1)] = 1
    """epochs from one validation, checkpoint and report to the next; the last epoch always has them"""
    non_private: NonPrivateSpec | None = None
    """settings of the SGD baseline, the shadow model and the reference models; null: the private settings, or, with
    model.features, those for heads"""
    audit: bool = True
    """with a private method: 10,000 made-up gradients by coin toss read the noise that is really added (`edp.audit`);
    costs no epsilon and leaves the weights as they are"""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """seed of initial weights, dropout and data order, never of noise"""
    device: Device = "auto"
    """device to train on; auto: cuda if there is a GPU"""

    @field_validator("batch_size", mode="before")
    @classmethod
    def _a_number_or_full(cls, size: Any) -> Any:
        if isinstance(size, str) and size != "full" and not size.isdecimal():
            raise ValueError(f"{size!r}; allowed: a number of utterances, or full")
        return size

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingSpec:
        if self.batch_size != "full" and self.clips is not None:
            if self.batch_size < self.clips:
                raise ValueError(
                    f"micro_batches = {self.micro_batches} is more than batch_size = {self.batch_size}; "
                    "allowed: at most one micro-batch per utterance"
                )
            if self.batch_size % self.clips:
                raise ValueError(
                    f"batch_size = {self.batch_size} is not a multiple of micro_batches = {self.micro_batches}"
                )
        if self.decay_epochs is not None and self.decay_epochs < self.epochs:
            raise ValueError(
                f"decay_epochs = {self.decay_epochs} is less than epochs = {self.epochs}; allowed: at least epochs"
            )
        if self.clips is not None and self.clips % self.workers:
            what = "batch_size" if self.method == "dpsgd" else "micro_batches"
            raise ValueError(
                f"workers = {self.workers} does not divide {what} = {self.clips}; allowed: {divisors(self.clips)}"
            )
        if self.non_private is not None and (self.non_private.batch_size or 0) % self.workers:
            raise ValueError(
                f"non_private.batch_size = {self.non_private.batch_size} is not a multiple of workers = "
                f"{self.workers}; allowed: multiples of {self.workers}"
            )
        return self

    def without_privacy(self) -> TrainingSpec:
        """Return the same training without clip and noise."""
        # SGD does not use micro-batches, but workers must divide their number.
        changes = {"method": "sgd", "micro_batches": self.clips or self.workers, "audit": True}
        return self.model_copy(update=changes)

    def non_private_training(self, heads: bool) -> TrainingSpec:
        """Return the training without privacy, with the settings of `non_private`.

        Args:
            heads: True for heads on the states of a frozen encoder: their private settings do not suit SGD.
        """
        changes: dict[str, Any] = {} if self.non_private is None else self.non_private.model_dump(exclude_none=True)
        if heads:
            even = -(-NON_PRIVATE_HEADS["batch_size"] // self.workers) * self.workers
            changes = NON_PRIVATE_HEADS | {"batch_size": even} | changes
        own = self.without_privacy()
        if not changes:
            return own
        changed = {name for name, value in changes.items() if value != getattr(own, name)}
        changes |= {name: None for name, (field, _) in self.belongs_to.items() if field in changed}
        if "epochs" in changes:
            changes["decay_epochs"] = None
        kept = own.model_dump(exclude={"non_private", "micro_batches"})
        return TrainingSpec.model_validate({**kept, **changes, "micro_batches": self.workers})

    @property
    def clips(self) -> int | None:
        """The clips of a step: DP-SGD clips every example. None: as many as there are examples."""
        if self.method != "dpsgd":
            return self.micro_batches
        return None if self.batch_size == "full" else self.batch_size

    def batch_in(self, examples: int) -> int:
        """Return `batch_size` for this number of training examples."""
        return examples if self.batch_size == "full" else self.batch_size

    def clips_in(self, examples: int, called: str = "utterances") -> int:
        """Return `clips`, the N that divides a step's clipped sum, for this number of training examples.

        With shuffled epochs the number may be public: in neighbouring corpora an example is replaced by an empty one.

        Args:
            examples: number of training utterances, or of users if they are the unit.
            called: the word for them in messages.

        Raises:
            UserError: for more clips than examples, since the sum would be divided by more than it can hold.
        """
        clips = examples if self.clips is None else self.clips
        if self.method == "edp" and clips > examples:
            raise UserError(
                f"training.micro_batches = {clips}: the corpus has {examples} utterances to train on; allowed: at most "
                "one micro-batch per utterance"
            )
        if self.method == "dpsgd" and clips > examples:
            raise UserError(
                f"training.batch_size = {clips}: the corpus has {examples} {called} to train on, and method dpsgd "
                "divides by the batch size; allowed: at most that many, or full with edp.sampling=shuffle"
            )
        if clips < self.workers:
            raise UserError(
                f"training.workers = {self.workers}: a step has {clips} clips; allowed: at most one worker per clip"
            )
        return clips

    def learning_rate_in(self, epoch: int) -> float:
        """Return the optimiser's learning rate in an epoch, counted from 0."""
        decay = epoch / (self.decay_epochs or self.epochs) if self.learning_rate_decay == "linear" else 0
        return self.learning_rate * (1 - decay)


def divisors(number: int) -> str:
    """Return the divisors of a number up to 1,024, for a message."""
    return ", ".join(str(one) for one in range(1, min(number, 1024) + 1) if number % one == 0)
