"""A model as a trial leaves it, to be registered in an MLflow store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import mlflow
import torch
from mlflow.pyfunc import PyFuncModel

from edp.spec import EDPSpec
from sweeps.engine.prepare import ensure_states
from sweeps.registry.register import Registered, register
from sweeps.tracking.tracker import Tracker
from tests.support.encoder_folders import make_encoder
from trainables.config import (
    BERTSpec,
    CLCSpec,
    CorpusSpec,
    EmbeddingsSpec,
    FeaturesSpec,
    HeadSpec,
    ModelSpec,
    ShadowSpec,
    TrainingSpec,
    TrialSpec,
)
from trainables.corpora import load_corpus
from trainables.corpora.labels import Task, for_task
from trainables.corpora.types import split_blanks
from trainables.features.compute_states import served_states
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.pretrained import pretrained_encoder
from trainables.features.states import has_states
from trainables.features.token_features import Batch, encode_utterances
from trainables.measure.measuring import contents
from trainables.models import JointModel, build_model

PUBLIC = CorpusSpec(name="health", utterances=60)
MODELS: dict[str, ModelSpec] = {
    "clc": CLCSpec(
        embeddings=EmbeddingsSpec(corpus=PUBLIC, epochs=1), embedding_size=12, hidden_size=12, layers=1, char_filters=8
    ),
    "bert": BERTSpec(pretrained=None, vocabulary=PUBLIC, hidden_size=24, layers=1, heads=2),
}
TASKS: dict[str, Task] = {"intents": "intents", "slots": "slots"}
"""Kinds that have one task alone: heads on a frozen encoder, and CLC."""
METRICS = {"ser": 0.25, "mia_auc": 0.53, "epsilon": 7.5, "epsilon_paper": 3.0, "delta": 5e-4}


def trial_spec(model: ModelSpec) -> TrialSpec:
    return TrialSpec(
        corpus=CorpusSpec(name="communication", utterances=60),
        model=model,
        shadow=ShadowSpec(corpus=CorpusSpec(name="video", utterances=60)),
        training=TrainingSpec(epochs=2),
        edp=EDPSpec(),
    )


def frozen(folder: Path) -> BERTSpec:
    return BERTSpec(
        pretrained=str(folder),
        vocabulary=PUBLIC,
        trainable="heads",
        head=HeadSpec(slots="softmax", shared_types=True, bio=True),
        features=FeaturesSpec(layers="1+2", public=(PUBLIC,)),
    )


class Kept:
    """A model as a trial leaves it, and the store that it is registered in."""

    def __init__(self, place: Path, kind: str, tracker: Tracker) -> None:
        self.kind = kind
        task, splits = TASKS.get(kind, "joint"), load_corpus(trial_spec(MODELS["clc"]).corpus)
        if kind in MODELS or kind == "slots":
            self.spec = trial_spec(MODELS.get(kind, MODELS["clc"]))
        elif kind in ("heads", "intents"):  # on a frozen encoder, which stays where it is, or goes along
            folder = make_encoder("bert", place / "encoder")
            self.spec = trial_spec(frozen(folder))
        else:  # an architecture that the bundle must tell the server of, and layers of it
            folder = make_encoder(kind, place / "pretrained")
            self.spec = trial_spec(BERTSpec(pretrained=str(folder), vocabulary=PUBLIC, layers=2))
        self.corpus: EncodedCorpus = encode(for_task(splits, task, "corpus"), self.spec.model, place / "corpus")
        ensure_states([self.corpus.folder], [self.spec.model], lambda line: None)
        self.model: JointModel = build_model(
            self.spec.model,
            self.corpus.labels,
            seed=3,
            vocabulary_size=self.corpus.vocabulary_size,
            state_sizes=self.corpus.for_model(self.spec.model).state_sizes,
        ).eval()
        if kind in ("heads", "intents"):  # which begin as zero
            for parameter in self.model.parameters():
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(3))
        self.folder = place / "trial"
        self.folder.mkdir()
        torch.save(contents(self.model, self.corpus), self.folder / "model.pt")
        if (place / "pretrained").is_dir():  # neither registering nor serving needs what it started from
            shutil.rmtree(place / "pretrained")
            pretrained_encoder.cache_clear()
        (self.folder / "ledger.json").write_text("{}")
        self.tracker = tracker
        self.run_id = tracker.start("a run", params={}, tags={})

    def batch(self, utterances: list[str]) -> Batch:
        """What the model reads of them."""
        batch = encode_utterances([split_blanks(utterance) for utterance in utterances], self.corpus.features())
        if not has_states(self.spec.model):
            return batch
        return served_states(self.spec.model, self.corpus.folder, self.corpus.labels)(batch)

    def register(self, name: str, *, wrote: dict[str, str] | None = None, with_encoder: bool = False) -> Registered:
        return register(
            name,
            tracker=self.tracker,
            run_id=self.run_id,
            folder=self.folder,
            features=self.corpus.folder / "features",
            spec=self.spec,
            metrics=METRICS,
            cost=60.0,
            wrote=wrote,
            with_encoder=with_encoder,
        )

    def load(self, model: Registered, config: dict[str, str] | None = None) -> PyFuncModel:
        mlflow.set_tracking_uri(self.tracker.uri)
        try:
            return mlflow.pyfunc.load_model(model.uri, model_config=config)
        finally:
            mlflow.set_tracking_uri(None)
            os.environ.pop("MLFLOW_TRACKING_URI", None)  # where MLflow puts it too
