"""States of a model that was saved in bfloat16: in that type where the device multiplies it, else in float32."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, T5EncoderModel

from tests.support.encoder_folders import FROZEN_KINDS, UTTERANCES, frozen_spec
from tests.support.models import built
from tests.support.toy import BERT
from trainables.config import BERTSpec
from trainables.features.compute_states import encoder_digest, hidden_states, load_frozen
from trainables.features.pretrained import check_pretrained, pretrained_pieces
from trainables.features.token_features import PieceInputs, encode_utterances


def lowered(folder: Path, place: Path) -> Path:
    """The model of a folder, saved in bfloat16."""
    shutil.copytree(folder, place)
    model_class = T5EncoderModel if folder.name == "t5" else AutoModel
    model_class.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(place)
    return place


def multiplies(monkeypatch: pytest.MonkeyPatch, hardware: bool) -> None:
    """Let the CPU say that it multiplies bfloat16 in hardware, or that it does not."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": hardware})


@pytest.mark.parametrize("kind", FROZEN_KINDS)
def test_states_of_bfloat16_weights_are_those_that_transformers_computes_in_bfloat16(
    kind: str, frozen: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiplies(monkeypatch, True)
    folder = lowered(frozen[kind], tmp_path / "low")
    encoder, pieces = load_frozen(frozen_spec(folder)), pretrained_pieces(str(folder))
    assert pieces is not None
    assert {p.dtype for p in encoder.parameters()} == {torch.bfloat16}
    batch = encode_utterances(UTTERANCES, pieces)
    assert isinstance(batch.inputs, PieceInputs)
    names = ["token_last_2", "sentence_mean_last", "sentence_last_last"]
    found = [state * 64 for state in hidden_states(encoder, batch, names)]
    mask_bs = batch.inputs.piece_mask_bs
    theirs = (T5EncoderModel if kind == "t5" else AutoModel).from_pretrained(folder, dtype="auto").eval()
    assert theirs.dtype == torch.bfloat16
    with torch.no_grad():
        states = theirs(batch.inputs.piece_bs, attention_mask=mask_bs.long(), output_hidden_states=True).hidden_states
    assert {state.dtype for state in states} == {torch.bfloat16}
    rows, last_b = torch.arange(len(UTTERANCES)), batch.inputs.pieces_b - 1
    token_bth = states[2].float()[rows[:, None], batch.inputs.last_bt] * batch.mask_bt[:, :, None]
    mean_bh = torch.stack([state[mask].float().mean(0) for state, mask in zip(states[-1], mask_bs, strict=True)])
    for mine, other in zip(found, (token_bth, mean_bh, states[-1].float()[rows, last_b]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)

    multiplies(monkeypatch, False)  # the same weights, in float32
    exact = [state * 64 for state in hidden_states(load_frozen(frozen_spec(folder)), batch, names)]
    for mine, other in zip(found, exact, strict=True):
        assert 0 < float((mine - other).norm() / other.norm()) < 0.03, "not in bfloat16, or not the same states"


def test_states_are_computed_in_the_type_of_the_folder_where_the_device_multiplies_it(
    frozen: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, half = lowered(frozen["llama"], tmp_path / "low"), tmp_path / "half"
    shutil.copytree(frozen["llama"], half)
    AutoModel.from_pretrained(frozen["llama"], dtype=torch.float16).save_pretrained(half)
    digests, keys = {}, {}
    for hardware in (True, False):
        multiplies(monkeypatch, hardware)
        for folder, expected in ((low, torch.bfloat16 if hardware else torch.float32), (half, torch.float32)):
            encoder = load_frozen(frozen_spec(folder))
            assert {p.dtype for p in encoder.parameters()} == {expected}
            digests[folder, hardware], keys[folder, hardware] = (
                encoder_digest(encoder),
                check_pretrained(frozen_spec(folder)),
            )
    assert digests[low, True] == digests[low, False], "a server may have another processor"
    assert keys[low, True] == ["bfloat16", *keys[low, False]], "other states need another encoded corpus"
    assert keys[half, True] == keys[half, False]
    multiplies(monkeypatch, True)
    trained = BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(low), trainable="lora", sentence="last")
    assert check_pretrained(trained) == keys[low, False], "adapters train on float32"
    assert {p.dtype for p in built(trained, tmp_path)[1].parameters()} == {torch.float32}
