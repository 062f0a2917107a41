"""Whatever encoder a recipe names, it reads what its own tokenizer reads and gives what `transformers` gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from edp.spec import UserError
from tests.support.encoder_folders import KINDS, POSITIONS, TEXTS, make_encoder
from tests.support.models import built, spec_of
from tests.support.toy import BERT, SPLITS, utterance
from trainables.config import BERTSpec
from trainables.corpora.types import Splits
from trainables.features.encoder import Encoder, config_from_json, config_to_json
from trainables.features.pretrained import check_pretrained, pretrained_encoder, pretrained_pieces
from trainables.features.token_features import Batch, PieceInputs, encode_utterances
from trainables.models.bert import BERT as Trained

UTTERANCES = [text.split() for text in (*TEXTS[:5], "hi", "Zyxwv unheard-of wörds !")]


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


def batch_of(folder: Path, tokens: list[list[str]]) -> Batch:
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    return encode_utterances(tokens, pieces)


def literal(folder: Path, tokens: list[str]) -> tuple[list[Tensor], list[int]]:
    """What `transformers` makes of an utterance by itself: states (S, H) after each layer, and where words begin."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(" ".join(tokens), return_tensors="pt")
    begins = [1 + len(tokenizer.tokenize(" ".join(tokens[:place]))) for place in range(len(tokens))]
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
    return [state[0] for state in states], begins


@pytest.mark.slow
def test_hidden_states_are_those_of_transformers_with_its_own_tokenizer(folder: Path, tmp_path: Path) -> None:
    _, net = built(spec_of(folder), tmp_path)
    _, mean = built(spec_of(folder, sentence="mean"), tmp_path / "mean")
    batch = batch_of(folder, UTTERANCES)
    with torch.no_grad():
        sentence_bh, token_bth = net.encode(batch)
        mean_bh, _ = mean.encode(batch)
    for row, tokens in enumerate(UTTERANCES):
        states, begins = literal(folder, tokens)
        torch.testing.assert_close(sentence_bh[row], states[-1][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mean_bh[row], states[-1].mean(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(token_bth[row, : len(tokens)], states[-1][begins], rtol=1e-4, atol=1e-4)


def test_an_encoded_corpus_gives_the_same_inputs_as_serving_does(folder: Path, tmp_path: Path) -> None:
    corpus, _ = built(spec_of(folder), tmp_path)
    order = np.array([3, 0, 1])
    stored = corpus.batch("train", order).inputs
    served = encode_utterances([u.tokens for u in corpus.utterances("train", order)], corpus.features()).inputs
    assert isinstance(stored, PieceInputs)
    assert isinstance(served, PieceInputs)
    assert stored.piece_bs.equal(served.piece_bs)
    assert stored.first_bt.equal(served.first_bt)


def test_every_weight_has_a_gradient(folder: Path, tmp_path: Path) -> None:
    corpus, net = built(spec_of(folder), tmp_path)
    net.train()
    net(corpus.batch("train", np.arange(5))).mean().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []
    assert not any("pooler" in name for name, _ in net.named_parameters())


def test_dropout_is_the_specs_whatever_the_architecture_calls_it(folder: Path, tmp_path: Path) -> None:
    batch = batch_of(folder, UTTERANCES)
    for dropout in (0.0, 0.5):
        _, net = built(spec_of(folder, dropout=dropout), tmp_path)
        net.train()
        torch.manual_seed(0)
        one, other = (net.encode(batch)[1] for _ in range(2))
        assert one.equal(other) == (dropout == 0)


def test_layers_takes_the_first_ones(folder: Path, tmp_path: Path) -> None:
    _, net = built(spec_of(folder, layers=2), tmp_path)
    tokens = UTTERANCES[0]
    states, begins = literal(folder, tokens)
    final = getattr(AutoModel.from_pretrained(folder), "final_norm", torch.nn.Identity())  # after a ModernBERT's last
    with torch.no_grad():
        sentence_bh, token_bth = net.encode(batch_of(folder, [tokens]))
        expected = final(states[2])
    torch.testing.assert_close(sentence_bh[0], expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(token_bth[0], expected[begins], rtol=1e-4, atol=1e-4)
    with pytest.raises(UserError, match=r"model\.layers = 4: .* has 3; allowed: 1 to 3, or null for all"):
        check_pretrained(spec_of(folder, layers=4))


def test_an_architecture_and_weights_are_all_that_a_server_needs(folder: Path, tmp_path: Path) -> None:
    spec = spec_of(folder, layers=2)
    corpus, net = built(spec, tmp_path)
    assert isinstance(net, Trained)
    text = config_to_json(net.encoder.config)
    assert str(folder.parent) not in text
    again = Trained(spec, corpus.labels, config=config_from_json(text)).eval()
    again.load_state_dict(net.state_dict())
    batch = batch_of(folder, UTTERANCES)
    with torch.no_grad():
        torch.testing.assert_close(again.encode(batch), net.encode(batch))


def test_no_more_pieces_are_read_than_there_are_positions(folder: Path, tmp_path: Path) -> None:
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    assert pieces.max_pieces == POSITIONS
    long = utterance("call " * 100, "O " * 100, "call")
    corpus, net = built(spec_of(folder), tmp_path, Splits([long, *SPLITS.train], SPLITS.valid, SPLITS.test))
    batch = corpus.batch("train", np.array([0, 1]))
    (call,), (first,) = pieces.pieces(["call"]), pieces.pieces(["call"], initial=True)
    assert int(batch.lengths_b[0]) == 1 + (POSITIONS - 2 - len(first)) // len(call)
    assert net(batch).isfinite().all()


def test_weights_of_half_precision_are_trained_in_full(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = make_encoder("electra", tmp_path / "half", dtype=torch.float16)
    AutoModel.from_pretrained(folder).half().save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    _, net = built(spec_of(folder), tmp_path)
    assert {p.dtype for p in net.parameters()} == {torch.float32}


def test_weights_saved_with_a_head_and_old_names_are_found(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "old"))
    weights = AutoModel.from_pretrained(folder).state_dict()
    renamed = {
        "bert." + k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v
        for k, v in weights.items()
    }
    (folder / "model.safetensors").unlink()
    torch.save(renamed | {"cls.predictions.bias": torch.zeros(3)}, folder / "pytorch_model.bin")
    loaded = Encoder.read(folder, "old").load(dropout=0.1).state_dict()
    assert all(value.equal(weights[name]) for name, value in loaded.items())


def test_what_a_folder_holds_tells_it_from_another_at_the_same_place(tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path / "made")
    before = check_pretrained(spec_of(folder))
    assert check_pretrained(spec_of(folder)) == before
    (folder / "notes.txt").write_text("of no account")
    assert check_pretrained(spec_of(folder)) == before
    with (folder / "tokenizer.json").open("a") as file:
        file.write("\n")
    assert check_pretrained(spec_of(folder)) != before
    assert check_pretrained(BERT) == []


def test_a_hub_that_answers_tells_its_encoder_from_the_random_start_while_it_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = make_encoder("bert", tmp_path / "0123abc")
    answers = False

    def snapshot_download(name: str, **more: Any) -> str:
        if not answers:
            raise FileNotFoundError("no network")
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    pretrained_encoder.cache_clear()
    spec = spec_of(Path("some/name"))
    assert check_pretrained(spec) == []
    states = BERTSpec.model_validate(
        spec.model_dump() | {"trainable": "heads", "features": {"public": [{"name": "video"}], "layers": "1"}}
    )
    with pytest.raises(UserError, match="some/name is not available"):
        check_pretrained(states)  # before a corpus is encoded with a vocabulary that is not the encoder's
    answers = True
    pretrained_encoder.cache_clear()
    assert check_pretrained(spec) == check_pretrained(states) == ["0123abc"]
    pretrained_encoder.cache_clear()
