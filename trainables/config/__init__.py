"""The specification of one trial: corpus, model, training and mechanism.

Specs are frozen, and the same in YAML and JSON. Must not import anything that reads a corpus or trains.
"""

from trainables.config.corpus import ColumnsSpec, CorpusSpec, PrivacyBudget, Quoting
from trainables.config.model import BERTSpec, CLCSpec, EmbeddingsSpec, FeaturesSpec, HeadSpec, ModelSpec
from trainables.config.training import Device, NonPrivateSpec, Precision, TrainingSpec
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
    "ModelSpec",
    "NonPrivateSpec",
    "Precision",
    "PrivacyBudget",
    "Quoting",
    "ShadowSpec",
    "TrainingSpec",
    "TrialSpec",
]
