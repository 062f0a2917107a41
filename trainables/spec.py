"""What one trial is, whole: corpus, model, training, mechanism. Frozen, and the same in YAML and JSON."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from edp.spec import EDPSpec, Frozen, UserError

Method = Literal["sgd", "edp", "dpsgd"]
Device = Literal["auto", "cpu", "cuda"]
Optimizer = Literal["adam", "adamw", "sgd", "momentum", "adam_bc"]

_OPTIMIZER_OF: dict[str, Optimizer] = {"momentum": "momentum", "weight_decay": "adamw", "noise_floor": "adam_bc"}
"""The optimiser that alone has a setting. Null is that optimiser's default (`trainables.optimizers`)."""

_MOST_WORKERS = 1024
"""Of those that a message lists."""


class CorpusSpec(Frozen):
    """Which utterances: a public corpus by name, a generated one, or a user's own by path."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="a public one (edp-sweep data fetch --help), communication, health, video, or any with a path",
        ),
    ]
    path: Annotated[str | None, Field(description="folder or file of the corpus; comes before everything")] = None
    format: Annotated[
        Literal["auto", "three_file", "nlu_eval", "jsonl", "conll"], Field(description="format of `path`")
    ] = "auto"
    utterances: Annotated[int | None, Field(ge=20, description="how many to generate (generated corpora)")] = None
    seed: Annotated[int, Field(ge=0, lt=2**32, description="of the generator and of the 45:5:50 split")] = 0


class EmbeddingsSpec(Frozen):
    """Where CLC's token embeddings come from. Never from the private corpus: they are released with the model."""

    path: Annotated[str | None, Field(description="a .vec or .bin file of fastText")] = None
    corpus: Annotated[CorpusSpec | None, Field(description="a public corpus to train fastText on with gensim")] = None
    epochs: Annotated[int, Field(ge=1)] = 10

    @model_validator(mode="after")
    def _one_source(self) -> EmbeddingsSpec:
        if (self.path is None) == (self.corpus is None):
            raise ValueError("give either path or corpus")
        return self


class HeadSpec(Frozen):
    """What stands on the states of tokens: how tags are scored, and which sequences of them are allowed."""

    slots: Annotated[
        Literal["crf", "bio_crf", "softmax"],
        Field(
            description="crf: with scores of a tag after another, learnt; bio_crf: of all sequences that BIO allows, "
            "alike, so that nothing of them is learnt or noised; softmax: each token by itself"
        ),
    ] = "crf"
    shared_types: Annotated[
        bool, Field(description="score of B-x is that of B plus that of x, of I-x that of I plus that of x")
    ] = False
    bio: Annotated[bool, Field(description="I-x is answered after B-x and I-x only, whatever was learnt")] = False


class FeaturesSpec(Frozen):
    """What the heads of a frozen encoder read: hidden states, computed once a corpus, whitened by public moments.

    Dropout is off: before the states nothing is trained, and after them there is a linear layer alone.
    """

    layers: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if type(value) is int else value),  # as YAML reads one alone
        Field(
            pattern=r"^(0|[1-9]\d*)(\+(0|[1-9]\d*))*$",
            description="hidden states that a token's vector is made of, such as \"2+4\"; 0: the embeddings'",
        ),
    ] = "2+4"
    pieces: Annotated[
        Literal["first", "mean"], Field(description="of a word's pieces: the first one's state, or the mean")
    ] = "first"
    sentence: Annotated[
        Literal["mean", "first"], Field(description="of an utterance: the mean of all states of the last layer")
    ] = "mean"
    whiten: Annotated[
        float, Field(ge=0, le=1, description="exponent: 1 gives equal variances, 0 leaves them as they are")
    ] = 1.0
    public: Annotated[
        tuple[CorpusSpec, ...],
        Field(min_length=1, description="public corpora whose states give mean, covariance and scale"),
    ]

    @model_validator(mode="after")
    def _each_layer_once(self) -> FeaturesSpec:
        if len(set(self.layer_numbers)) < len(self.layer_numbers):
            raise ValueError(f"layers = {self.layers} names a layer twice; allowed: each once")
        return self

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The hidden states, in the order given."""
        return tuple(int(number) for number in self.layers.split("+"))


class CLCSpec(Frozen):
    """Character CNN and token embeddings, bi-LSTM, CRF (Ma and Hovy 2016). Defaults are the paper's sizes."""

    kind: Literal["clc"] = "clc"
    embeddings: EmbeddingsSpec
    embedding_size: Annotated[int, Field(ge=1)] = 300
    hidden_size: Annotated[int, Field(ge=1, description="of one direction of a layer")] = 384
    layers: Annotated[int, Field(ge=1)] = 2
    char_embedding_size: Annotated[int, Field(ge=1)] = 30
    char_filters: Annotated[int, Field(ge=1)] = 50
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    trainable: Annotated[Literal["all", "heads"], Field(description="heads: what is before them stays as it is")] = (
        "all"
    )
    head: HeadSpec = HeadSpec()


class BERTSpec(Frozen):
    """A Transformer encoder (BERT, or any that `pretrained` names) with an intent head and a CRF on the first sub-word
    of a token."""

    kind: Literal["bert"] = "bert"
    pretrained: Annotated[
        str | None,
        Field(description="minilm (the extra `pretrained`), a folder, or a Hugging Face name; null: random start"),
    ] = "huawei-noah/TinyBERT_General_4L_312D"
    vocabulary: Annotated[
        CorpusSpec,
        Field(description="public corpus that a WordPiece vocabulary is built on where `pretrained` has none"),
    ]
    hidden_size: Annotated[int, Field(ge=1, description="where the start is random")] = 312
    layers: Annotated[
        int | None,
        Field(ge=1, description="first so many of a pretrained encoder, null: all; of a random start, null: 4"),
    ] = None
    heads: Annotated[int, Field(ge=1, description="where the start is random")] = 12
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    trainable: Annotated[
        Literal["all", "heads", "lora", "bitfit", "top_k"],
        Field(description="what is trained beside the heads: lora: adapters, bitfit: biases, top_k: the last layers"),
    ] = "all"
    lora_rank: Annotated[int | None, Field(ge=1, description="of lora; null: 8")] = None
    lora_target: Annotated[
        Literal["query_value", "attention", "all"] | None,
        Field(description="linear layers that lora adapts; null: query_value"),
    ] = None
    top_layers: Annotated[int | None, Field(ge=1, description="k of top_k; null: 1")] = None
    head: HeadSpec = HeadSpec()
    features: Annotated[
        FeaturesSpec | None,
        Field(description="of trainable = heads: the encoder's states are computed once; null: in every step"),
    ] = None

    @model_validator(mode="after")
    def _features_are_of_a_frozen_encoder(self) -> BERTSpec:
        if self.features is None:
            return self
        if self.trainable != "heads":
            raise ValueError(
                f"model.features has no meaning with model.trainable = {self.trainable}; "
                "allowed: null, or model.trainable = heads"
            )
        if self.pretrained is None:
            raise ValueError(
                "model.features: states of a random start say nothing; allowed: null, or an encoder in model.pretrained"
            )
        return self

    @model_validator(mode="after")
    def _options_belong_to_what_is_trained(self) -> BERTSpec:
        for name, kind in (("lora_rank", "lora"), ("lora_target", "lora"), ("top_layers", "top_k")):
            if getattr(self, name) is not None and self.trainable != kind:
                raise ValueError(
                    f"model.{name} = {getattr(self, name)} has no meaning with model.trainable = {self.trainable}; "
                    f"allowed: null, or model.trainable = {kind}"
                )
        return self

    @model_validator(mode="after")
    def _heads_share_the_hidden_size(self) -> BERTSpec:
        if self.hidden_size % self.heads:
            fit = [str(heads) for heads in range(1, self.hidden_size) if self.hidden_size % heads == 0]
            raise ValueError(
                f"model.heads = {self.heads} does not divide model.hidden_size = {self.hidden_size}; "
                f"allowed: {', '.join(fit)}"
            )
        return self

    @property
    def random_layers(self) -> int:
        """How many layers a random start has: the paper's four, unless told."""
        return 4 if self.layers is None else self.layers


ModelSpec = Annotated[CLCSpec | BERTSpec, Field(discriminator="kind")]


class PlainSpec(Frozen):
    """Training without privacy where its settings are not the private ones: a learning rate that was chosen for clipped
    gradients of full batches would throw a model off whose gradients are not clipped."""

    epochs: Annotated[int, Field(ge=1)] = 15
    batch_size: Annotated[int, Field(ge=1)] = 64
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], Field(description="with its default settings")] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 3e-2


class TrainingSpec(Frozen):
    """How it is trained. `micro_batches` belongs to the mechanism, `workers` to the hardware (DESIGN)."""

    method: Method = "edp"
    epochs: Annotated[int, Field(ge=1)] = 15
    batch_size: Annotated[
        Annotated[int, Field(ge=1)] | Literal["full"],
        Field(description="utterances a step, all workers together; full: all of the training split"),
    ] = 64
    micro_batches: Annotated[int, Field(ge=1, description="N of the paper: clips a step")] = 8
    workers: Annotated[int, Field(ge=1, description="processes; divides micro_batches")] = 8
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    optimizer: Annotated[
        Optimizer,
        Field(
            description="takes the step with what `method` made of the gradient: sgd is the plain step here, noisy "
            "or not; momentum: heavy-ball; adam_bc: Adam with the noise's variance taken out of its second moment"
        ),
    ] = "adam"
    momentum: Annotated[
        float | None, Field(ge=0, lt=1, description="of momentum: v = momentum v + g, w -= learning_rate v; null: 0.9")
    ] = None
    weight_decay: Annotated[
        float | None, Field(ge=0, description="of adamw: a step takes learning_rate weight_decay w off w; null: 0.01")
    ] = None
    noise_floor: Annotated[
        float | None, Field(gt=0, description="of adam_bc: least second moment, over the noise's variance; null: 0.1")
    ] = None
    average: Annotated[
        float | None,
        Field(
            ge=0,
            lt=1,
            description="decay of an exponential moving average of the weights, which is what is measured and "
            "released; costs no epsilon; 0 and null: the weights themselves",
        ),
    ] = None
    learning_rate_decay: Annotated[
        Literal["none", "linear"], Field(description="linear: epoch t of T at learning_rate (1 - t/T)")
    ] = "none"
    decay_epochs: Annotated[
        int | None, Field(ge=1, description="T of learning_rate_decay, where training ends before; null: epochs")
    ] = None
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Field(description="of the products in training; weights, gradients, clip and noise are float32 in any case"),
    ] = "float32"
    memory_batch: Annotated[
        int | None,
        Field(ge=1, description="most utterances that a worker runs at once; null: what fits. Changes no result"),
    ] = None
    sub_chunks: Annotated[int, Field(ge=1, description="length-sorted pieces that a worker's share is run in")] = 1
    validate_every: Annotated[
        int,
        Field(ge=1, description="epochs from one validation, checkpoint and report to the next; the last has all"),
    ] = 1
    plain: Annotated[
        PlainSpec | None,
        Field(
            description="of the SGD baseline, the shadow and reference models; null: the settings above, and with "
            "model.features the defaults here"
        ),
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**32, description="of weights, dropout and data order; never of noise")] = 0
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
            raise ValueError(
                f"workers = {self.workers} does not divide micro_batches = {self.clips}; "
                f"allowed: {', '.join(str(d) for d in _divisors(self.clips))}"
            )
        return self

    @model_validator(mode="after")
    def _plain_batches_are_shared_evenly(self) -> TrainingSpec:
        if self.plain is not None and self.plain.batch_size % self.workers:
            raise ValueError(
                f"plain.batch_size = {self.plain.batch_size} is not a multiple of workers = {self.workers}"
            )
        return self

    @model_validator(mode="after")
    def _optimizer_has_a_use_for_its_settings(self) -> TrainingSpec:
        for field, owner in _OPTIMIZER_OF.items():
            value = getattr(self, field)
            if value is not None and self.optimizer != owner:
                raise ValueError(
                    f"{field} = {value:g} has no meaning with optimizer {self.optimizer}; "
                    f"leave it out, or set optimizer to {owner}"
                )
        if self.optimizer == "adam_bc" and self.method == "sgd":
            raise ValueError(
                "optimizer = adam_bc has no meaning with method sgd, which adds no noise; "
                "allowed: adam, adamw, sgd, momentum"
            )
        return self

    def without_privacy(self) -> TrainingSpec:
        """The same training without clip and noise. adam takes the place of adam_bc, which corrects for noise alone."""
        # SGD has no use for micro-batches, but workers must divide them.
        changes: dict[str, Any] = {"method": "sgd", "micro_batches": self.clips or self.workers}
        if self.optimizer == "adam_bc":
            changes |= {"optimizer": "adam", "noise_floor": None}
        return self.model_copy(update=changes)

    def as_plain(self, plain: PlainSpec) -> TrainingSpec:
        """`plain`, on the same machines with the same seed."""
        same = {name: getattr(self, name) for name in ("workers", "precision", "memory_batch", "seed", "device")}
        return TrainingSpec(method="sgd", micro_batches=self.workers, **same, **plain.model_dump())

    @property
    def clips(self) -> int | None:
        """Micro-batches a step, as executed: DP-SGD clips every example. None: as many as there are examples."""
        if self.method != "dpsgd":
            return self.micro_batches
        return None if self.batch_size == "full" else self.batch_size

    def batch_in(self, examples: int) -> int:
        """`batch_size` on so many training examples."""
        return examples if self.batch_size == "full" else self.batch_size

    def clips_in(self, examples: int) -> int:
        """`clips`, the N that a step's clipped sum is divided by, on so many training examples.

        With shuffled epochs their number may be public: neighbours differ by an example that is replaced by nothing.

        Raises:
            UserError: for more clips than examples, whose sum would be divided by more than it can hold.
        """
        clips = examples if self.clips is None else self.clips
        if self.method == "dpsgd" and clips > examples:
            raise UserError(
                f"training.batch_size = {clips}: the corpus has {examples} utterances to train on, and method dpsgd "
                "divides by the batch size; allowed: at most that many, or full"
            )
        if clips < self.workers:
            raise UserError(
                f"training.workers = {self.workers}: a step has {clips} clips; allowed: at most one worker a clip"
            )
        return clips

    def learning_rate_in(self, epoch: int) -> float:
        """The optimiser's learning rate in an epoch, counted from 0."""
        decay = epoch / (self.decay_epochs or self.epochs) if self.learning_rate_decay == "linear" else 0
        return self.learning_rate * (1 - decay)


def _divisors(clips: int) -> list[int]:
    """Numbers of workers that share so many micro-batches evenly; those that somebody may have."""
    return [workers for workers in range(1, min(clips, _MOST_WORKERS) + 1) if clips % workers == 0]


def for_its_optimizer(training: dict[str, Any], optimizers: Collection[Any]) -> dict[str, Any]:
    """The settings of `training` less those that belong to another one of `optimizers` than its own."""
    others = set(optimizers) - {training["optimizer"]}
    return {name: value for name, value in training.items() if _OPTIMIZER_OF.get(name) not in others}


class ShadowSpec(Frozen):
    """The shadow model of the membership attack: the same architecture, trained on a public corpus without privacy."""

    corpus: CorpusSpec
    epochs: Annotated[int | None, Field(ge=1, description="null: as many as the model under attack")] = None


class CanariesSpec(Frozen):
    """Utterances put in to audit a run: about half of them are trained on (`trainables.attacks.canary`)."""

    count: Annotated[int, Field(ge=0, le=1_000_000, description="0: none, and no audited epsilon")] = 0


class TrialSpec(Frozen):
    """One configuration: what `edp-sweep train` runs, what a sweep's trial runs, what `pick` writes."""

    corpus: CorpusSpec
    model: ModelSpec
    shadow: ShadowSpec
    canaries: CanariesSpec = CanariesSpec()
    training: TrainingSpec = TrainingSpec()
    edp: EDPSpec = EDPSpec()

    def without_privacy(self) -> TrainingSpec:
        """The training of the SGD baseline, the shadow and reference models: what `training.plain` says, or the same
        without clip and noise."""
        plain = self.training.plain
        if plain is None and isinstance(self.model, BERTSpec) and self.model.features is not None:
            workers = self.training.workers
            plain = PlainSpec(batch_size=-(-64 // workers) * workers)
        return self.training.without_privacy() if plain is None else self.training.as_plain(plain)

    @model_validator(mode="after")
    def _a_full_batch_is_not_drawn(self) -> TrialSpec:
        if self.training.batch_size == "full" and self.edp.sampling != "shuffle":
            raise ValueError(
                f"training.batch_size = full leaves edp.sampling = {self.edp.sampling} nothing to draw; "
                "allowed: edp.sampling=shuffle, or a number"
            )
        return self

    @model_validator(mode="after")
    def _public_scales_need_the_encoder(self) -> TrialSpec:
        if self.edp.alpha == "public" and isinstance(self.model, BERTSpec) and self.model.features is not None:
            raise ValueError(
                "edp.alpha = public has no meaning with model.features, whose heads read no words; "
                "allowed: none, fixed, private"
            )
        return self

    @model_validator(mode="after")
    def _public_means_another_corpus(self) -> TrialSpec:
        private = (self.corpus.name, self.corpus.path)
        public: dict[str, CorpusSpec | None] = {"shadow.corpus": self.shadow.corpus}
        if isinstance(self.model, CLCSpec):
            public["model.embeddings.corpus"] = self.model.embeddings.corpus
        else:
            public["model.vocabulary"] = self.model.vocabulary
            if self.model.features is not None:
                public |= {f"model.features.public.{i}": corpus for i, corpus in enumerate(self.model.features.public)}
        for field, corpus in public.items():
            if corpus is not None and (
                (corpus.name, corpus.path) == private or (corpus.path is not None and corpus.path == self.corpus.path)
            ):
                raise ValueError(
                    f"{field} = {corpus.name}: it is released with the model or shown to the attacker, "
                    "so it must not be the private corpus; allowed: another, public one"
                )
        return self
