"""What was trained on is in the model's own record, and attacks that would take it for unseen are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edp.spec import UserError
from sweeps.config.loading import write_yaml
from sweeps.engine.jobs.attack import find_target, trained_on
from tests.support.tiny import spec
from tests.support.toy import CLC, encoded
from trainables.measure.measuring import contents


@pytest.fixture
def training(tmp_path: Path) -> Path:
    folder = tmp_path / "train-made"
    (tmp_path / "cache").mkdir()
    folder.mkdir()
    write_yaml(spec(), folder / "config.yaml")
    return folder


@pytest.mark.slow
def test_a_model_that_was_trained_on_validation_utterances_too_is_refused(training: Path, tmp_path: Path) -> None:
    corpus = encoded(CLC, tmp_path)
    model = torch.nn.Linear(1, 1)
    torch.save(contents(model, corpus), training / "model.pt")
    assert find_target("train-made", tmp_path, None).folder == training
    assert trained_on(training / "model.pt") == "train"
    torch.save(contents(model, corpus.with_valid_in_train()), training / "model.pt")
    with pytest.raises(UserError, match=r"trained on train\+valid"):
        find_target("train-made", tmp_path, None)
