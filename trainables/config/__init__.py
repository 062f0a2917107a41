"""The specification of one trial: corpus, model, training, mechanism. Frozen, and the same in YAML and JSON. Must not
import anything that reads a corpus or trains."""

from trainables.config.corpus import ColumnsSpec, CorpusSpec
from trainables.config.model import BERTSpec, CLCSpec, EmbeddingsSpec, FeaturesSpec, HeadSpec, ModelSpec
from trainables.config.training import (
    Device,
    Method,
    NonPrivateSpec,
    Optimizer,
    Precision,
    TrainingSpec,
)
from trainables.config.trial import CanariesSpec, ShadowSpec, TrialSpec

__all__ = [
    "BERTSpec",
    "CLCSpec",
    "CanariesSpec",
    "ColumnsSpec",
    "CorpusSpec",
    "Device",
    "EmbeddingsSpec",
    "FeaturesSpec",
    "HeadSpec",
    "Method",
    "ModelSpec",
    "NonPrivateSpec",
    "Optimizer",
    "Precision",
    "ShadowSpec",
    "TrainingSpec",
    "TrialSpec",
]
