"""An utterance alone has the loss that it has in its batch, and a trainer whose model breaks that ends at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edp.steps import HookUsageError
from tests.support.models import batch_of, build
from tests.support.tiny import SPEC
from tests.support.toy import BERT, CLC, encoded
from trainables.config import ModelSpec, TrialSpec
from trainables.features.token_features import Batch
from trainables.models import JointModel
from trainables.training.process import alone, new_model
from trainables.training.trainer import Trainer

CPU = torch.device("cpu")
MODELS = {
    "clc": CLC,
    "bert": BERT,
    "bert's lora": BERT.model_copy(update={"trainable": "lora"}),
    "bert's mean": BERT.model_copy(update={"sentence": "mean"}),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_an_utterance_has_the_same_loss_alone_and_in_its_batch_with_dropout(model: ModelSpec, tmp_path: Path) -> None:
    corpus = encoded(model, tmp_path)
    net = build(model, corpus).double().train()
    batch = batch_of(corpus, np.array([3, 1, 4, 0]), torch.float64)
    together = net(batch)
    for index in ([0], [1], [3], [2, 0], [1, 1]):
        torch.testing.assert_close(net(batch.select_examples(index)), together[index])


def trainer(model: ModelSpec, folder: Path) -> Trainer:
    training = {"workers": 1, "learning_rate": 0.1, "batch_size": 4, "micro_batches": 4, "epochs": 3}
    spec = TrialSpec.model_validate(SPEC | {"model": model.model_dump(), "training": training})
    corpus = encoded(model, folder)
    return Trainer(new_model(spec, corpus, CPU), corpus, spec, CPU)


def test_a_model_whose_loss_depends_on_the_batch_ends_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = JointModel.forward

    def by_tokens(model: JointModel, batch: Batch) -> torch.Tensor:
        return forward(model, batch) / batch.mask_bt.sum()

    monkeypatch.setattr(JointModel, "forward", by_tokens)
    with alone(), pytest.raises(HookUsageError, match="depends on the other examples of its batch"):
        trainer(CLC, tmp_path).run_epoch(0)
