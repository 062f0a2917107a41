"""The settings of training, with privacy and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from edp.spec import Frozen, UserError

Method = Literal["sgd", "edp", "dpsgd"]
Device = Literal["auto", "cpu", "cuda"]
Optimizer = Literal["adam", "adamw", "sgd", "momentum", "adam_bc"]
Precision = Literal["auto", "float32", "bfloat16"]
"""`auto` is bfloat16 where the device multiplies it in hardware, else float32. A processor that does not takes some
fifty times as long for it (an EPYC with AVX2 alone: 1.3 against 63 GFLOP/s)."""

MAX_EPOCHS = 100_000
"""Limit of epochs: each has an entry in the ledger, which is priced as a whole."""

_MAX_WORKERS = 1024
"""Largest number of workers that a message lists."""


class NonPrivateSpec(Frozen):
    """Settings of training without privacy that differ from the private ones: with a learning rate that suits clipped
    gradients of full batches, training without a clip diverges.

    A null setting is the private one, and with `model.features` the one of `NON_PRIVATE_HEADS`.
    """

    epochs: Annotated[int | None, Field(ge=1, le=MAX_EPOCHS, description="null: the private one; of heads 15")] = None
    batch_size: Annotated[int | None, Field(ge=1, description="null: the private one; of heads 64")] = None
    optimizer: Annotated[
        Literal["adam", "adamw", "sgd"] | None,
        Field(description="with its default settings; null: the private one; of heads adam"),
    ] = None
    learning_rate: Annotated[float | None, Field(gt=0, description="null: the private one; of heads 0.03")] = None


NON_PRIVATE_HEADS: dict[str, Any] = {"epochs": 15, "batch_size": 64, "optimizer": "adam", "learning_rate": 3e-2}
"""Settings of training without privacy for heads on the states of a frozen encoder."""


class TrainingSpec(Frozen):
    """The settings of training. `micro_batches` belongs to the mechanism, `workers` to the hardware."""

    # Null is an optimiser's own default (`trainables.training.optimizers`).
    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {
        "momentum": ("optimizer", "momentum"),
        "weight_decay": ("optimizer", "adamw"),
        "noise_floor": ("optimizer", "adam_bc"),
        "decay_epochs": ("learning_rate_decay", "linear"),
    }

    method: Method = "edp"
    epochs: Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = 15
    batch_size: Annotated[
        Annotated[int, Field(ge=1)] | Literal["full"],
        Field(
            description="utterances a step, all workers together, or users with edp.unit = user; full: the training set"
        ),
    ] = 64
    micro_batches: Annotated[int, Field(ge=1, description="N of the paper: clips a step")] = 8
    workers: Annotated[int, Field(ge=1, description="processes; divides micro_batches")] = 8
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    optimizer: Annotated[
        Optimizer,
        Field(
            description="step rule for the gradient of `method`, noisy or not; momentum: heavy-ball; adam_bc: "
            "Adam with the noise's variance taken out of its second moment"
        ),
    ] = "adam"
    momentum: Annotated[
        float | None,
        Field(ge=0, lt=1, description="with optimizer momentum: v = momentum v + g, w -= learning_rate v; null: 0.9"),
    ] = None
    weight_decay: Annotated[
        float | None,
        Field(ge=0, description="with optimizer adamw: a step takes learning_rate weight_decay w off w; null: 0.01"),
    ] = None
    noise_floor: Annotated[
        float | None,
        Field(gt=0, description="with optimizer adam_bc: least second moment, over the noise's variance; null: 0.1"),
    ] = None
    average: Annotated[
        float | None,
        Field(
            ge=0,
            lt=1,
            description="decay of an exponential moving average of the weights, which is measured and released "
            "in their place; costs no epsilon; 0 and null: the weights themselves",
        ),
    ] = None
    learning_rate_decay: Annotated[
        Literal["none", "linear"], Field(description="linear: epoch t of T at learning_rate (1 - t/T)")
    ] = "none"
    decay_epochs: Annotated[
        int | None, Field(ge=1, description="T of learning_rate_decay for a training that ends earlier; null: epochs")
    ] = None
    precision: Annotated[
        Precision,
        Field(
            description="precision of the products in training; auto: bfloat16 where the device multiplies it "
            "in hardware (other processors are some fifty times slower with it). Weights, "
            "gradients, clip and noise are always float32. Scores of bfloat16 have three digits: "
            "heads with a small clip and a large rate need float32"
        ),
    ] = "float32"
    memory_batch: Annotated[
        int | None,
        Field(
            ge=1,
            description="most utterances that a worker runs at once; null: those that fit into memory. Changes "
            "no result",
        ),
    ] = None
    sub_chunks: Annotated[
        int, Field(ge=1, description="number of length-sorted chunks of a worker's share of a step")
    ] = 1
    validate_every: Annotated[
        int,
        Field(
            ge=1, description="epochs from one validation, checkpoint and report to the next; the last epoch has all"
        ),
    ] = 1
    non_private: Annotated[
        NonPrivateSpec | None,
        Field(
            description="settings of the SGD baseline, the shadow and reference models; null: the settings above, and "
            "with model.features those of heads"
        ),
    ] = None
    seed: Annotated[
        int, Field(ge=0, lt=2**32, description="seed of weights, dropout and data order; never of noise")
    ] = 0
    device: Device = "auto"

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
                    "allowed: at most one micro-batch an utterance"
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
                f"workers = {self.workers} does not divide {what} = {self.clips}; "
                f"allowed: {', '.join(str(d) for d in _divisors(self.clips))}"
            )
        return self

    @model_validator(mode="after")
    def _non_private_batches_are_shared_evenly(self) -> TrainingSpec:
        if self.non_private is not None and (self.non_private.batch_size or 0) % self.workers:
            raise ValueError(
                f"non_private.batch_size = {self.non_private.batch_size} is not a multiple of workers = "
                f"{self.workers}; allowed: multiples of {self.workers}"
            )
        return self

    @model_validator(mode="after")
    def _noise_is_there_to_be_taken_out(self) -> TrainingSpec:
        if self.optimizer == "adam_bc" and self.method == "sgd":
            raise ValueError(
                "optimizer = adam_bc has no meaning with method sgd, which adds no noise; "
                "allowed: adam, adamw, sgd, momentum"
            )
        return self

    def without_privacy(self) -> TrainingSpec:
        """Return the same training without clip and noise; adam replaces adam_bc, which only corrects for noise."""
        # SGD has no use for micro-batches, but workers must divide them.
        changes: dict[str, Any] = {"method": "sgd", "micro_batches": self.clips or self.workers}
        if self.optimizer == "adam_bc":
            changes |= {"optimizer": "adam", "noise_floor": None}
        return self.model_copy(update=changes)

    def non_private_training(self, heads: bool) -> TrainingSpec:
        """Return the training without privacy, with the settings of `non_private`.

        Args:
            heads: True for heads on the states of a frozen encoder, whose private settings do not suit SGD.
        """
        changes: dict[str, Any] = {} if self.non_private is None else self.non_private.model_dump(exclude_none=True)
        if heads:
            same = {name: getattr(self, name) for name in ("workers", "precision", "memory_batch", "seed", "device")}
            even = -(-NON_PRIVATE_HEADS["batch_size"] // self.workers) * self.workers
            return TrainingSpec(
                method="sgd", micro_batches=self.workers, **same, **{**NON_PRIVATE_HEADS, "batch_size": even, **changes}
            )
        own = self.without_privacy()
        if not changes:
            return own
        if changes.get("optimizer", own.optimizer) != own.optimizer:
            changes |= {"momentum": None, "weight_decay": None}
        if "epochs" in changes:
            changes["decay_epochs"] = None
        kept = own.model_dump(exclude={"non_private", "micro_batches"})
        return TrainingSpec.model_validate({**kept, **changes, "micro_batches": self.workers})

    @property
    def clips(self) -> int | None:
        """Micro-batches a step, as executed: DP-SGD clips every example. None: the number of examples."""
        if self.method != "dpsgd":
            return self.micro_batches
        return None if self.batch_size == "full" else self.batch_size

    def batch_in(self, examples: int) -> int:
        """Return `batch_size` for this number of training examples."""
        return examples if self.batch_size == "full" else self.batch_size

    def clips_in(self, examples: int, called: str = "utterances") -> int:
        """Return `clips`, the N that divides a step's clipped sum, for this number of training examples.

        With shuffled epochs the number may be public: neighbours differ by an example that is replaced by nothing.

        Args:
            examples: training utterances, or users where they are the unit.
            called: the word for them in messages.

        Raises:
            UserError: for more clips than examples, whose sum would be divided by more than it can hold.
        """
        clips = examples if self.clips is None else self.clips
        if self.method == "edp" and clips > examples:
            raise UserError(
                f"training.micro_batches = {clips}: the corpus has {examples} utterances to train on; allowed: at most "
                "one micro-batch an utterance"
            )
        if self.method == "dpsgd" and clips > examples:
            raise UserError(
                f"training.batch_size = {clips}: the corpus has {examples} {called} to train on, and method dpsgd "
                "divides by the batch size; allowed: at most that many, or full with edp.sampling=shuffle"
            )
        if clips < self.workers:
            raise UserError(
                f"training.workers = {self.workers}: a step has {clips} clips; allowed: at most one worker a clip"
            )
        return clips

    def learning_rate_in(self, epoch: int) -> float:
        """Return the optimiser's learning rate in an epoch, counted from 0."""
        decay = epoch / (self.decay_epochs or self.epochs) if self.learning_rate_decay == "linear" else 0
        return self.learning_rate * (1 - decay)


def _divisors(clips: int) -> list[int]:
    """Return the numbers of workers, up to `_MAX_WORKERS`, that divide `clips`."""
    return [workers for workers in range(1, min(clips, _MAX_WORKERS) + 1) if clips % workers == 0]
