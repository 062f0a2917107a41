"""Specs of heads on a frozen encoder, for the tests here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainables.config import BERTSpec, CorpusSpec, TrialSpec

PUBLIC = CorpusSpec(name="health", utterances=400)
PRIVATE = {"name": "communication", "utterances": 120}


def model_spec(folder: Path, **features: Any) -> BERTSpec:
    return BERTSpec.model_validate(
        {
            "pretrained": str(folder),
            "vocabulary": PUBLIC.model_dump(),
            "trainable": "heads",
            "head": {"slots": "softmax", "shared_types": True, "bio": True},
            "features": {
                "layers": "1+3",
                "word": "first",
                "sentence": "mean",
                "public": [PUBLIC.model_dump()],
                **features,
            },
        }
    )


def trial_spec(model: BERTSpec, **changes: Any) -> TrialSpec:
    return TrialSpec.model_validate(
        {
            "corpus": PRIVATE,
            "shadow": {"corpus": {"name": "video", "utterances": 60}},
            "model": model.model_dump(),
            "training": {
                "method": "dpsgd",
                "epochs": 20,
                "batch_size": "full",
                "workers": 1,
                "learning_rate": 30,
                "optimizer": "momentum",
                "validate_every": 8,
                **changes,
            },
            "edp": {"z0": 0.01, "alpha": "none", "reproducible_noise": 1},
        }
    )
