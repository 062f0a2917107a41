"""Our LSTM on the CPU is PyTorch's, to the last gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.support.tiny import SPEC
from tests.support.toy import CLC, encoded
from trainables.config import TrialSpec
from trainables.models import lstm as models_lstm
from trainables.models.lstm import PackedLSTM, Packing, bidirectional_lstm, cudnn_layer
from trainables.training.process import alone, new_model
from trainables.training.trainer import Trainer

CPU = torch.device("cpu")


def of_torch(lstm: nn.LSTM, input_bte: Tensor, lengths_b: Tensor) -> Tensor:
    packed = pack_padded_sequence(input_bte, lengths_b, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]


def ours(lstm: PackedLSTM, input_bte: Tensor, lengths_b: Tensor) -> Tensor:
    packing = Packing.of(lengths_b)
    hidden_nh = bidirectional_lstm(lstm, input_bte.flatten(0, 1)[packing.flat_n], packing)
    padded = input_bte.new_zeros(input_bte.shape[0] * input_bte.shape[1], hidden_nh.shape[1])
    return padded.index_copy(0, packing.flat_n, hidden_nh).unflatten(0, input_bte.shape[:2])


@pytest.mark.parametrize("lengths", [[3, 7, 1, 7, 2], [1], [1, 1, 1], [4, 4], [9]], ids=str)
@pytest.mark.parametrize("layers", [1, 3])
def test_it_gives_the_states_and_gradients_of_torch_lstm(lengths: list[int], layers: int) -> None:
    torch.manual_seed(0)
    lstm = PackedLSTM(5, 4, num_layers=layers, bidirectional=True, batch_first=True).double()
    lengths_b = torch.tensor(lengths)
    input_bte = torch.randn(len(lengths), max(lengths), 5, dtype=torch.float64)
    wanted = torch.randn(len(lengths), max(lengths), 8, dtype=torch.float64)
    found = []
    for forward in (of_torch, ours):
        lstm.zero_grad()
        given = input_bte.clone().requires_grad_()
        hidden = forward(lstm, given, lengths_b)
        (hidden * wanted).sum().backward()
        found.append([hidden.detach(), given.grad, *(p.grad.clone() for p in lstm.parameters())])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [[3, 7, 1, 7, 2], [1], [1, 1, 1], [9]], ids=str)
@pytest.mark.parametrize("needs", [True, False])
def test_pytorchs_lstm_gives_the_states_and_the_gates_derivatives_of_ours(lengths: list[int], needs: bool) -> None:
    torch.manual_seed(0)
    lstm = PackedLSTM(5, 4, bidirectional=True, batch_first=True).double()
    packing = Packing.of(torch.tensor(lengths))
    input_ne, wanted = torch.randn(sum(lengths), 5).double(), torch.randn(sum(lengths), 8).double()
    ways = ("l0", "l0_reverse")
    parameters = [lstm.get_parameter(f"{kind}_{way}") for way in ways for kind in ("weight_ih", "weight_hh")]
    parameters += [lstm.get_parameter(f"bias_ih_{way}") + lstm.get_parameter(f"bias_hh_{way}") for way in ways]
    found = []
    drawn = torch.get_rng_state()
    for forward in (models_lstm._Layer.apply, cudnn_layer):
        given = input_ne.clone().requires_grad_(needs)
        heard: list[Tensor] = []
        hidden = forward(given, packing, lambda *records, heard=heard: heard.extend(records), *parameters)
        (hidden * wanted).sum().backward()
        assert len(heard) == 4
        found.append([hidden.detach(), *heard, *([given.grad] if needs else [])])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    assert torch.equal(torch.get_rng_state(), drawn), "dropout would draw other numbers"
    assert all(parameter.grad is None for parameter in lstm.parameters())


@pytest.mark.slow
def test_a_private_training_by_pytorchs_lstm_is_the_one_by_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, trained = encoded(CLC, tmp_path), list[Tensor]()
    training = {"workers": 1, "learning_rate": 0.1, "batch_size": 4, "method": "dpsgd", "epochs": 2}
    spec = TrialSpec.model_validate(SPEC | {"model": CLC.model_dump(), "training": training})
    calls: list[Tensor] = []
    by_pytorch = models_lstm.cudnn_layer
    monkeypatch.setattr(models_lstm, "cudnn_layer", lambda *given: (calls.append(given[0]), by_pytorch(*given))[1])
    for library in (False, True):
        monkeypatch.setattr(models_lstm, "library_is_faster", lambda device, library=library: library)
        with alone():
            model = new_model(spec, corpus, CPU)
            running = Trainer(model, corpus, spec, CPU)
            for epoch in range(2):
                running.run_epoch(epoch)
        assert bool(calls) is library
        trained.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    torch.testing.assert_close(*trained, rtol=1e-4, atol=1e-5)
