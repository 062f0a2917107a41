"""States of a frozen encoder: its own in half precision, whitened, and the same from a disk as from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, T5EncoderModel

from edp.spec import UserError
from tests.support.encoder_folders import FROZEN_KINDS, frozen_spec, make_encoder, make_frozen, tiny_config
from tests.support.frozen_heads import PUBLIC, model_spec
from trainables.corpora import Splits, generate, load_corpus
from trainables.features.compute_states import (
    alike,
    all_state_names,
    frozen_encoder,
    hidden_states,
    load_frozen,
    write_states,
)
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.states import CONSTANT, Moments, moments_file
from trainables.features.token_features import PieceInputs, StateInputs, encode_utterances


def test_kept_states_are_the_encoders_own_in_half_precision(folder: Path, encoder_folder: Path) -> None:
    corpus, encoder = EncodedCorpus.open(folder), load_frozen(model_spec(encoder_folder))
    kept = np.load(folder / "states" / "token_first_2.npy")
    sentences = np.load(folder / "states" / "sentence_mean_last.npy")
    assert kept.dtype == np.float16
    train = corpus.size("train")
    for index in (0, 3, train - 1):
        batch = corpus.batch("train", np.array([index]))
        assert isinstance(batch.inputs, PieceInputs)
        with torch.no_grad():
            output: Any = encoder(input_ids=batch.inputs.piece_bs, output_hidden_states=True)
        state_sh = output.hidden_states[2][0]
        first = int(corpus.lengths("train")[:index].sum())
        for place, start in enumerate(batch.inputs.first_bt[0].tolist()):
            assert torch.allclose(torch.from_numpy(kept[first + place]).float(), state_sh[start], rtol=1e-3, atol=2e-3)
        mean = output.hidden_states[-1][0].mean(0)
        assert torch.allclose(torch.from_numpy(sentences[index]).float(), mean, rtol=1e-3, atol=2e-3)


def test_a_trial_reads_its_own_columns_of_what_a_sweep_keeps(folder: Path, encoder_folder: Path) -> None:
    names = {path.stem for path in (folder / "states").glob("*.npy")}
    tokens = {f"token_first_{layer}" for layer in (1, 2, 3)}
    assert names == tokens | {"sentence_mean_last", "sentence_first_last", "read"}
    both = EncodedCorpus.open(folder).for_model(model_spec(encoder_folder, layers="1+2")).batch("train", np.arange(4))
    one = EncodedCorpus.open(folder).for_model(model_spec(encoder_folder, layers="2")).batch("train", np.arange(4))
    assert isinstance(both.inputs, StateInputs)
    assert isinstance(one.inputs, StateInputs)
    half = both.inputs.token_nd[:, 16:32] * np.sqrt(2)
    assert torch.allclose(half, one.inputs.token_nd[:, :16], atol=1e-5)
    assert torch.equal(both.inputs.token_nd[:, -1], torch.full((len(half),), CONSTANT))


def test_whitening_makes_the_public_corpus_uncorrelated_and_of_unit_length(folder: Path, encoder_folder: Path) -> None:
    spec = model_spec(encoder_folder)
    splits, features = load_corpus(PUBLIC), EncodedCorpus.open(folder).features()
    tokens = [u.tokens for part in (splits.train, splits.valid, splits.test) for u in part]
    batch = encode_utterances(tokens, features)
    (state_bth,) = hidden_states(load_frozen(spec), batch, ["token_first_3"])
    moments = Moments.load(moments_file(folder / "features", "token_first_3"))
    x_nh = moments.whitener(1.0)(state_bth[batch.mask_bt])
    width = x_nh.shape[1]
    assert torch.allclose(x_nh.square().sum(1).mean(), torch.tensor(1.0), atol=0.01)
    assert torch.allclose(x_nh.mean(0), torch.zeros(width), atol=0.01)
    real = moments.values_h > 0.1 * moments.values_h.mean()  # the ridge holds back what hardly varies
    variance_h = torch.cov(x_nh.t()).diagonal()[real] * width
    assert torch.allclose(variance_h, variance_h.mean().expand_as(variance_h), rtol=0.02)
    plain = moments.whitener(0.0)(state_bth[batch.mask_bt])
    ratio = torch.cov(plain.t()).trace() / moments.values_h.sum()
    found = torch.linalg.eigvalsh(torch.cov(plain.t())).double() / ratio
    # The layer norm before leaves one direction without any variance: of it there is rounding, as the processor has it.
    assert torch.allclose(found, moments.values_h, rtol=0.05, atol=1e-5)


def test_a_corpus_too_large_for_memory_gives_the_same_batches(
    folder: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, indices = model_spec(encoder_folder), np.array([4, 0, 9])
    small = EncodedCorpus.open(folder).for_model(spec)
    monkeypatch.setattr("trainables.features.states._IN_MEMORY", 0)
    large = EncodedCorpus.open(folder).for_model(spec)
    assert small.states_in_memory
    assert not large.states_in_memory
    one, other = small.batch("train", indices).inputs, large.batch("train", indices).inputs
    assert isinstance(one, StateInputs)
    assert isinstance(other, StateInputs)
    assert torch.allclose(one.token_nd, other.token_nd, atol=1e-5)


def test_parts_of_a_corpus_keep_their_states(folder: Path, encoder_folder: Path) -> None:
    corpus = EncodedCorpus.open(folder).for_model(model_spec(encoder_folder))
    joined, chosen = corpus.with_valid_in_train(), corpus.with_train({"test": np.array([5, 2])})
    pairs = [
        (joined.batch("train", np.array([0])), corpus.batch("valid", np.array([0]))),
        (joined.batch("train", np.array([corpus.size("valid")])), corpus.batch("train", np.array([0]))),
        (chosen.batch("train", np.array([1])), corpus.batch("test", np.array([2]))),
    ]
    for one, other in pairs:
        assert isinstance(one.inputs, StateInputs)
        assert isinstance(other.inputs, StateInputs)
        assert torch.equal(one.inputs.token_nd, other.inputs.token_nd)
        assert torch.equal(one.inputs.sentence_bd, other.inputs.sentence_bd)


def test_a_layer_that_the_encoder_lacks_is_named(encoder_folder: Path) -> None:
    with pytest.raises(
        UserError, match=r"model\.features\.layers = 2\+9: .* has 3 layers; allowed: numbers from 0 to 3"
    ):
        load_frozen(model_spec(encoder_folder, layers="2+9"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("fnet", torch.float32),
        *((kind, dtype) for kind in ("bert", "llama", "t5") for dtype in (torch.float32, torch.bfloat16)),
    ],
)
def test_an_utterances_states_are_the_same_bits_whoever_else_is_in_the_corpus(
    kind: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the shortest one, others would move to batches of another width: FNet's states show that."""
    make = make_frozen if kind in FROZEN_KINDS else make_encoder
    folder = make("bert" if kind == "fnet" else kind, tmp_path / "made")
    if kind == "fnet":
        config = tiny_config(kind)
        config.vocab_size = 2200
        AutoModel.from_config(config).save_pretrained(folder)
    (T5EncoderModel if kind == "t5" else AutoModel).from_pretrained(folder, dtype=dtype).save_pretrained(folder)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    spec = frozen_spec(folder, layers="1+3")
    utterances = generate("communication", 900, seed=3)
    shortest = min(range(len(utterances)), key=lambda i: len(utterances[i].tokens))
    kept = [np.arange(len(utterances)), np.delete(np.arange(len(utterances)), shortest)]
    frozen_encoder.cache_clear()
    found = []
    for number, chosen in enumerate(kept):
        splits = Splits([utterances[i] for i in chosen], utterances[:3], utterances[:3])
        corpus = encode(splits, spec, tmp_path / f"corpus-{number}")
        names = all_state_names([spec], corpus.labels)
        write_states(corpus.folder, spec, names)
        row_n = np.repeat(chosen, corpus.lengths("train"))
        for name in names:
            array = np.load(corpus.folder / "states" / f"{name}.npy")
            ids = row_n if name.startswith("token") else chosen
            found.append(array[: len(ids)][ids != shortest].view(np.uint16))
    assert frozen_encoder(spec).dtype == dtype
    for one, other in zip(found[: len(names)], found[len(names) :], strict=True):
        assert np.array_equal(one, other)
    frozen_encoder.cache_clear()


def test_a_group_has_one_size_and_rows_that_depend_on_it_alone() -> None:
    rng = np.random.default_rng(0)
    sizes_n = rng.integers(3, 600, 400)
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        groups = alike(sizes_n, device)
        assert sorted(np.concatenate([own for own, _ in groups]).tolist()) == list(range(400))
        rows = {(int(size), rows) for own, rows in groups for size in sizes_n[own]}
        assert len(rows) == len(set(sizes_n.tolist()))
        assert all(len(own) <= rows and len(set(sizes_n[own].tolist())) == 1 for own, rows in groups)
        fewer = {(int(size), rows) for own, rows in alike(sizes_n[1:], device) for size in sizes_n[1:][own]}
        assert fewer <= rows
