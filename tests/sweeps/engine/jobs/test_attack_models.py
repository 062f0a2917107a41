"""How far the models are that attacks compare with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.engine.jobs.attack_models import epochs_done
from tests.support.frozen_heads import model_spec, trial_spec
from trainables.training.references import ReferenceModel


@pytest.mark.parametrize("epochs", [3, 32])
def test_a_model_that_is_trained_counts_its_own_epochs(epochs: int, tmp_path: Path) -> None:
    spec = trial_spec(model_spec(tmp_path), epochs=epochs)
    model = ReferenceModel(spec, tmp_path, tmp_path / "0.npz", 0)
    assert epochs_done(model) == 0
    (tmp_path / ".0.npz.epochs").write_text("2")
    assert epochs_done(model) == 2
    model.output.touch()
    assert epochs_done(model) == epochs
