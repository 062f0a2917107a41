"""Frozen models of any family give what `transformers` gives on the whole text, at the sub-words that a word has there.

Decoders (Llama, Qwen, Gemma, GPT-2) and the encoder of T5; tokenizers of a dozen kinds, with odd text.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, MambaConfig, MambaModel

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.space import bound_combinations
from sweeps.engine.prepare import check_encoders
from tests.support.encoder_folders import FROZEN_KINDS, KINDS, TEXTS, UTTERANCES, frozen_spec, make_encoder, make_frozen
from tests.support.models import built
from tests.support.toy import BERT
from trainables.config import BERTSpec
from trainables.features.compute_states import encoder_digest, frozen_encoder, hidden_states, load_frozen, take_encoder
from trainables.features.encoder import config_from_json, fills_gaps
from trainables.features.pretrained import check_pretrained, pretrained_encoder, pretrained_pieces
from trainables.features.token_features import PieceInputs, encode_utterances
from trainables.models.bert import BERT as Trained

DECODERS = [kind for kind in FROZEN_KINDS if kind != "t5"]


def places(tokenizer: Tokenizer, tokens: list[str], ids: list[int]) -> list[tuple[int, int]]:
    """The first and last piece of each word in a whole text, by where pieces end in it: the literal way."""
    text = " ".join(tokens)
    encoding = tokenizer.encode(text)
    assert encoding.ids == ids
    ends, begin = [], 0
    for token in tokens:
        begin += len(token) + 1
        ends.append(begin - 1)
    pieces: list[list[int]] = [[] for _ in tokens]
    for place, ((_, end), special) in enumerate(zip(encoding.offsets, encoding.special_tokens_mask, strict=True)):
        if not special:
            pieces[next(i for i, last in enumerate(ends) if end <= last)].append(place)
    return [(own[0], own[-1]) for own in pieces]


@pytest.mark.parametrize("kind", [*FROZEN_KINDS, *KINDS])
def test_words_are_at_the_pieces_that_they_have_in_the_whole_text(
    kind: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    folder = frozen[kind] if kind in frozen else make_encoder(kind, tmp_path / kind)
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    inputs = encode_utterances(UTTERANCES, pieces).inputs
    assert isinstance(inputs, PieceInputs)
    for row, tokens in enumerate(UTTERANCES):
        ids = inputs.piece_bs[row][inputs.piece_mask_bs[row]].tolist()
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        found = list(zip(inputs.first_bt[row].tolist(), inputs.last_bt[row].tolist(), strict=True))[: len(tokens)]
        assert found == places(tokenizer, tokens, ids), tokens


def whole_text(folder: Path, tokens: list[str], both: bool = False) -> list[Tensor]:
    """The states (S, H) that `transformers` gives of an utterance by itself, after each layer."""
    spec = frozen_spec(folder)
    encoder = load_frozen(spec)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer(" ".join(tokens)).input_ids])
    if both:
        for module in (encoder.config, *encoder.modules()):
            if hasattr(module, "is_causal") or module is encoder.config:
                module.is_causal = False
    with torch.no_grad():
        return [state[0] for state in encoder(input_ids=ids, output_hidden_states=True).hidden_states]


@pytest.mark.parametrize("kind", FROZEN_KINDS)
@pytest.mark.parametrize("both", [False, True])
def test_states_of_a_batch_are_those_of_each_text_alone(kind: str, both: bool, frozen: dict[str, Path]) -> None:
    if both and kind not in DECODERS:
        with pytest.raises(UserError, match=r"of type t5, reads both directions by itself; allowed: own"):
            check_pretrained(frozen_spec(frozen[kind], attention="both"))
        return
    folder, way = frozen[kind], "_both" if both else ""
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    batch = encode_utterances(UTTERANCES, pieces)
    names = [f"{what}{way}" for what in ("token_first_2", "token_last_2", "sentence_mean_last", "sentence_last_last")]
    first_bth, last_bth, mean_bh, last_bh = (
        x * 64 for x in hidden_states(load_frozen(frozen_spec(folder)), batch, names)
    )
    assert isinstance(batch.inputs, PieceInputs)
    for row, tokens in enumerate(UTTERANCES):
        states = whole_text(folder, tokens, both)
        first, last = (x[row, : len(tokens)] for x in (batch.inputs.first_bt, batch.inputs.last_bt))
        near = {"rtol": 2e-4, "atol": 2e-4}
        torch.testing.assert_close(first_bth[row, : len(tokens)], states[2][first], **near)
        torch.testing.assert_close(last_bth[row, : len(tokens)], states[2][last], **near)
        torch.testing.assert_close(mean_bh[row], states[-1].mean(0), **near)
        torch.testing.assert_close(last_bh[row], states[-1][-1], **near)


def test_a_decoder_is_read_where_it_knows_the_word(frozen: dict[str, Path], tmp_path: Path) -> None:
    folder = frozen["qwen3"]
    for setting, others in (("word", "last"), ("sentence", "mean, last")):
        wanted = rf"model.features.{setting} = first: .* of type qwen3, has read only .*; allowed: {others}, or "
        with pytest.raises(UserError, match=wanted):
            check_pretrained(frozen_spec(folder, **{setting: "first"}))
        check_pretrained(frozen_spec(folder, **{setting: "first"}, attention="both"))
    MambaModel(MambaConfig(vocab_size=800, hidden_size=8, state_size=4, num_hidden_layers=2)).save_pretrained(
        tmp_path / "mamba"
    )
    (tmp_path / "mamba" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match=r"of type mamba, can read one direction only; allowed: own"):
        load_frozen(frozen_spec(tmp_path / "mamba", attention="both"))


@pytest.mark.parametrize("kind", [*FROZEN_KINDS, "bert"])
def test_by_default_a_decoder_is_read_at_its_last_sub_words(
    kind: str, frozen: dict[str, Path], encoder_folder: Path, tmp_path: Path
) -> None:
    folder = frozen.get(kind, encoder_folder)
    word, sentence = ("last", "last") if kind in DECODERS else ("first", "mean")
    spec = frozen_spec(folder, word="auto")
    assert spec.features is not None
    assert spec.features.sentence == "auto"
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    batch = encode_utterances(UTTERANCES, pieces)
    names = ["token_auto_2", f"token_{word}_2", "sentence_auto_last", f"sentence_{sentence}_last"]
    frozen_encoder.cache_clear()
    take_encoder(spec, tmp_path / "taken")
    for encoder in (load_frozen(spec), load_frozen(spec, tmp_path / "taken")):
        auto_bth, named_bth, auto_bh, named_bh = hidden_states(encoder, batch, names)
        assert torch.equal(auto_bth, named_bth)
        assert torch.equal(auto_bh, named_bh)
    frozen_encoder.cache_clear()


@pytest.mark.parametrize(("kind", "sentence"), [("bert", "first"), ("qwen3", "last"), ("t5", "last")])
def test_by_default_adapters_read_an_utterance_where_their_model_knows_it(
    kind: str, sentence: str, frozen: dict[str, Path], encoder_folder: Path, tmp_path: Path
) -> None:
    folder = frozen.get(kind, encoder_folder)
    auto, named = (
        BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(folder), trainable="lora", **given)
        for given in ({}, {"sentence": sentence})
    )
    corpus, net = built(auto, tmp_path / "auto")
    saved = Trained(auto, corpus.labels, config=config_from_json(net.architecture)).eval()
    saved.load_state_dict(net.state_dict())
    batch = corpus.batch("train", np.arange(3))
    with torch.no_grad():
        expected, _ = built(named, tmp_path / "named")[1].encode(batch)
        for model in (net, saved):
            assert torch.equal(model.encode(batch)[0], expected)


def test_a_decoder_is_one_setting_of_a_recipe_for_frozen_heads(tmp_path: Path) -> None:
    folder = make_frozen("qwen3", tmp_path / "made", num_hidden_layers=6)
    recipe = load_recipe("atis_private", [f"model.pretrained={folder}"])[1]
    trials = [recipe.trial({**params, "z0": 1.0}) for params in bound_combinations(recipe.dimensions)]
    assert trials
    check_encoders(trials)


def test_only_adapters_of_a_decoder_are_trained(frozen: dict[str, Path], tmp_path: Path) -> None:
    for kind, folder in frozen.items():
        pretrained_encoder.cache_clear()
        assert not fills_gaps(load_frozen(frozen_spec(folder)).config)
        for changes, says in (
            ({"trainable": "all"}, r"model.trainable = all: .* is no encoder such as BERT; allowed: heads, lora"),
            (
                {"trainable": "lora", "sentence": "first"},
                r"model.sentence = first: .* at its first sub-word; allowed: last, mean",
            ),
        ):
            spec = BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(folder), **changes)
            with pytest.raises(UserError, match=says):
                built(spec, tmp_path / kind)


def test_a_prompt_is_before_each_utterance_and_costs_positions(frozen: dict[str, Path]) -> None:
    for kind in ("llama", "gemma3", "t5"):
        plain, prompted = (pretrained_pieces(str(frozen[kind]), prompt) for prompt in ("", "query: "))
        assert plain is not None
        assert prompted is not None
        tokens = TEXTS[0].split()
        inputs = encode_utterances([tokens], prompted).inputs
        assert isinstance(inputs, PieceInputs)
        tokenizer = AutoTokenizer.from_pretrained(frozen[kind])
        assert inputs.piece_bs[0].tolist() == tokenizer(f"query: {' '.join(tokens)}").input_ids
        assert inputs.first_bt[0, 0] == len(prompted.prompt_pieces) + (kind != "t5")
        read, left = (int(encode_utterances([["call"] * 60], one).lengths_b) for one in (plain, prompted))
        assert (read > left) == (kind != "t5"), "T5's positions are relative"
    with pytest.raises(UserError, match=r"model.features.prompt has \d+ pieces; allowed: at most 20, half of what"):
        pretrained_pieces(str(frozen["llama"]), "query " * 30)
    one, other = (check_pretrained(frozen_spec(frozen["llama"], prompt=prompt)) for prompt in ("", "query: "))
    assert one != other, "another prompt needs another encoded corpus"


@pytest.mark.parametrize(("kind", "whole"), [("qwen3", AutoModelForCausalLM), ("t5", AutoModelForSeq2SeqLM)])
def test_a_checkpoint_with_its_language_model_head_is_read_too(
    kind: str, whole: Any, frozen: dict[str, Path], tmp_path: Path
) -> None:
    """Most folders hold the head with which the model was trained, and T5's the decoder."""
    shutil.copytree(frozen[kind], tmp_path / kind)
    model = whole.from_pretrained(frozen[kind])
    model.save_pretrained(tmp_path / kind)
    one, other = (load_frozen(frozen_spec(folder)) for folder in (frozen[kind], tmp_path / kind))
    assert encoder_digest(one) == encoder_digest(other)


@pytest.mark.parametrize("kind", FROZEN_KINDS)
def test_a_model_that_was_taken_along_is_the_same_without_its_folder(
    kind: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    spec = frozen_spec(frozen[kind], attention="both" if kind in DECODERS else "own")
    frozen_encoder.cache_clear()
    take_encoder(spec, tmp_path / "taken")
    elsewhere = spec.model_copy(update={"pretrained": "a name that is nowhere"})
    assert encoder_digest(load_frozen(elsewhere, tmp_path / "taken")) == encoder_digest(frozen_encoder(spec))
