"""One configuration: corpus, model, training, mechanism and attack."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edp.spec import EDPSpec, Frozen, UserError
from trainables.config.corpus import CorpusSpec
from trainables.config.model import BERTSpec, CLCSpec, ModelSpec
from trainables.config.training import MAX_EPOCHS, TrainingSpec

CanaryKind = Literal["values", "new_tokens", "outliers"]


class ShadowSpec(Frozen):
    """The shadow model of the membership attack: the same architecture, trained on a public corpus without privacy."""

    corpus: CorpusSpec
    """public corpus that the attack learns from"""
    epochs: Annotated[int | None, Field(ge=1, le=MAX_EPOCHS)] = None
    """epochs; null: those of the attacked model"""


class CanariesSpec(Frozen):
    """Utterances that are added to audit SGD: about half are trained on (`trainables.measure.attacks.canary`)."""

    count: Annotated[int, Field(ge=0, le=100_000)] = 0
    """number of canaries; 0: none, and no audited epsilon; allowed with method = sgd alone"""
    kind: CanaryKind = "values"
    """values: new slot values; new_tokens: words that occur nowhere else; outliers: wrong labels"""

    @model_validator(mode="after")
    def _kind_needs_canaries(self) -> CanariesSpec:
        if self.count == 0 and self.kind != "values":
            raise ValueError(
                f"kind = {self.kind} has no meaning without any canary; allowed: with a count of at least 1"
            )
        return self


class TrialSpec(Frozen):
    """One configuration: trials of a sweep and `edp-sweep train` run it, and `edp-sweep pick` writes it."""

    corpus: CorpusSpec
    model: ModelSpec
    shadow: ShadowSpec
    canaries: CanariesSpec = CanariesSpec()
    training: TrainingSpec = TrainingSpec()
    edp: EDPSpec = EDPSpec()

    def non_private_training(self) -> TrainingSpec:
        """Return the training of the SGD baseline, the shadow model and the reference models.

        It follows `training.non_private`. Training without privacy is returned unchanged.
        """
        if self.training.method == "sgd":
            return self.training
        return self.training.non_private_training(isinstance(self.model, BERTSpec) and self.model.features is not None)

    def check_users(self, users: int | None) -> None:
        """Raise if users are the unit and the corpus names none, or too few for `edp.delta`.

        Args:
            users: number of users in the corpus; None: not known.
        """
        if self.edp.unit != "user":
            return
        if users is None:
            raise UserError(
                f"edp.unit = user: corpus {self.corpus.name} does not name the users of its utterances; "
                "allowed: example, or a corpus with a user in every utterance"
            )
        if self.edp.delta * users >= 1:
            raise UserError(
                f"edp.delta = {self.edp.delta:g}: the corpus has {users:,} users to train on, and so large a delta "
                f"would allow to publish one of them; allowed with edp.unit = user: less than {1 / users:.3g}"
            )

    @model_validator(mode="after")
    def _fits_together(self) -> TrialSpec:
        if self.canaries.count and self.training.method != "sgd":
            # Without one utterance most canaries would be made of others: many clips, where the ledger charges one.
            raise ValueError(
                f"canaries.count = {self.canaries.count}: canaries are made of the corpus' utterances, so no epsilon "
                "would cover a private training, which has an audit of its own (training.audit); allowed: 0, or "
                "training.method = sgd"
            )
        if self.edp.unit == "user" and self.training.method == "edp":
            raise ValueError(
                "edp.unit = user clips each user alone, but training.method = edp clips micro-batches of several; "
                "allowed: training.method = dpsgd, whose batch_size then counts users"
            )
        if self.training.batch_size == "full" and self.edp.sampling != "shuffle":
            raise ValueError(
                f"training.batch_size = full leaves edp.sampling = {self.edp.sampling} nothing to draw; "
                "allowed: edp.sampling=shuffle, or a number"
            )
        if self.training.gradient_checkpointing and not (
            isinstance(self.model, BERTSpec) and self.model.trainable != "heads"
        ):
            raise ValueError(
                "training.gradient_checkpointing = true has no meaning without layers of an encoder that are trained; "
                "allowed: false, or model.kind = bert with model.trainable = all or lora"
            )
        if self.edp.alpha == "public" and isinstance(self.model, BERTSpec) and self.model.features is not None:
            raise ValueError(
                "edp.alpha = public has no meaning with model.features, whose heads read no words; "
                "allowed: none, fixed, private"
            )
        return self

    @property
    def public_corpora(self) -> dict[str, CorpusSpec]:
        """The corpora that are treated as public, by field. No ε covers what is learnt from them."""
        if isinstance(self.model, CLCSpec):
            return {"shadow.corpus": self.shadow.corpus, "model.embeddings.corpus": self.model.embeddings.corpus}
        features = () if self.model.features is None else self.model.features.public
        others = {f"model.features.public.{i}": corpus for i, corpus in enumerate(features)}
        return {"shadow.corpus": self.shadow.corpus, "model.vocabulary": self.model.vocabulary} | others

    @model_validator(mode="after")
    def _public_corpora_are_not_the_private_one(self) -> TrialSpec:
        private = (self.corpus.name, self.corpus.path)
        for field, corpus in self.public_corpora.items():
            corpus.check_public(field)
            if (corpus.name, corpus.path) == private or (corpus.path is not None and corpus.path == self.corpus.path):
                raise ValueError(
                    f"{field} = {corpus.name}: it is released with the model or shown to the attacker, "
                    "so it must not be the private corpus; allowed: another, public one"
                )
        return self
