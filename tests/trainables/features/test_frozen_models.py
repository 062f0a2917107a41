"""Frozen models of any family give what `transformers` gives on the whole text, at the sub-words that a word has there.

Decoders (Llama, Qwen, Gemma, GPT-2) and the encoder of T5; tokenizers of a dozen kinds, with odd text.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MambaConfig,
    MambaModel,
    T5EncoderModel,
)

from edp.spec import UserError
from tests.support.encoder_folders import FROZEN_KINDS, KINDS, TEXTS, byte_pairs, make_encoder, make_frozen
from tests.support.models import built
from tests.support.toy import BERT
from trainables.config import BERTSpec, CorpusSpec, FeaturesSpec
from trainables.features.batch import PieceInputs
from trainables.features.compute_states import (
    encoder_digest,
    frozen_encoder,
    hidden_states,
    load_frozen,
    take_encoder,
)
from trainables.features.encoder_architecture import fills_gaps, reads_left
from trainables.features.pretrained import check_pretrained, pretrained_folder, pretrained_pieces
from trainables.features.token_features import encode_utterances
from trainables.features.word_pieces import WordPieces

DECODERS = [kind for kind in FROZEN_KINDS if kind != "t5"]
ODD = [
    "it 's 12:30 , don't !",
    "Zürich naïve ÀÉ",
    "今日 は rain ☂ 🙂🙂",
    "a",
    "1234567 7th $5.99",
    "e\u0301 cafe\u0301 ﬁne",
]
UTTERANCES = [text.split() for text in (*TEXTS[:3], *ODD)]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("frozen")
    return {kind: make_frozen(kind, place / kind) for kind in FROZEN_KINDS}


def spec_of(folder: Path, **changes: Any) -> BERTSpec:
    given: dict[str, Any] = {"layers": "2", "public": (CorpusSpec(name="video", utterances=20),), "word": "last"}
    features = FeaturesSpec(**(given | changes))
    return BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(folder), trainable="heads", features=features)


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


def test_more_tokenizers_align_odd_text() -> None:
    """Those of no kind above: cased WordPiece, BPE with a space before each text, Unigram of ALBERT, whole words."""
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    spaced = byte_pairs(names)
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    cased = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    cased.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    cased.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    cased.train_from_iterator([*TEXTS, *ODD], trainers.WordPieceTrainer(special_tokens=special, show_progress=False))
    albert = Tokenizer(models.Unigram())
    albert.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    albert.pre_tokenizer = pre_tokenizers.Metaspace()
    unigrams = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="[UNK]", show_progress=False)
    albert.train_from_iterator(TEXTS, unigrams)
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for tokenizer in (spaced, cased, albert, words):
        pieces = WordPieces(tokenizer, "mine")
        inputs = encode_utterances(UTTERANCES, pieces).inputs
        assert isinstance(inputs, PieceInputs)
        for row, tokens in enumerate(UTTERANCES):
            ids = inputs.piece_bs[row][inputs.piece_mask_bs[row]].tolist()
            own = tokenizer.encode(" ".join(tokens)).ids
            lead = 0 if own == ids else 1  # without a post-processor, the special tokens are ours
            expected = places(tokenizer, tokens, own)
            assert ids[lead : lead + len(own)] == own
            found = zip(inputs.first_bt[row].tolist(), inputs.last_bt[row].tolist(), strict=True)
            assert [(a - lead, b - lead) for a, b in found][: len(tokens)] == expected, tokens


def whole_text(folder: Path, tokens: list[str], both: bool = False) -> list[Tensor]:
    """The states (S, H) that `transformers` gives of an utterance by itself, after each layer."""
    spec = spec_of(folder)
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
            check_pretrained(spec_of(frozen[kind], attention="both"))
        return
    folder, way = frozen[kind], "_both" if both else ""
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    batch = encode_utterances(UTTERANCES, pieces)
    names = [f"{what}{way}" for what in ("token_first_2", "token_last_2", "sentence_mean_last", "sentence_last_last")]
    first_bth, last_bth, mean_bh, last_bh = (x * 64 for x in hidden_states(load_frozen(spec_of(folder)), batch, names))
    assert isinstance(batch.inputs, PieceInputs)
    for row, tokens in enumerate(UTTERANCES):
        states = whole_text(folder, tokens, both)
        first, last = (x[row, : len(tokens)] for x in (batch.inputs.first_bt, batch.inputs.last_bt))
        near = {"rtol": 2e-4, "atol": 2e-4}
        torch.testing.assert_close(first_bth[row, : len(tokens)], states[2][first], **near)
        torch.testing.assert_close(last_bth[row, : len(tokens)], states[2][last], **near)
        torch.testing.assert_close(mean_bh[row], states[-1].mean(0), **near)
        torch.testing.assert_close(last_bh[row], states[-1][-1], **near)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_reads_what_is_behind_only_if_it_is_asked_to(kind: str, frozen: dict[str, Path]) -> None:
    folder = frozen[kind]
    encoder, pieces = load_frozen(spec_of(folder, attention="both")), pretrained_pieces(str(folder))
    assert pieces is not None
    assert reads_left(encoder.config)
    one, other = (encode_utterances([["call", "mum", end]], pieces) for end in ("now", "tomorrow"))
    for name, same in (("token_last_3", True), ("token_last_3_both", False), ("token_last_3", True)):
        (a, b) = (hidden_states(encoder, batch, [name])[0][0, :2] for batch in (one, other))
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6) == same, name
    assert not hasattr(encoder.config, "is_causal"), (
        "a released model's configuration says what its weights were trained as"
    )


def test_a_decoder_is_read_where_it_knows_the_word(frozen: dict[str, Path], tmp_path: Path) -> None:
    folder = frozen["qwen3"]
    for setting, others in (("word", "last"), ("sentence", "mean, last")):
        wanted = rf"model.features.{setting} = first: .* of type qwen3, has read only .*; allowed: {others}, or "
        with pytest.raises(UserError, match=wanted):
            check_pretrained(spec_of(folder, **{setting: "first"}))
        check_pretrained(spec_of(folder, **{setting: "first"}, attention="both"))
    MambaModel(MambaConfig(vocab_size=800, hidden_size=8, state_size=4, num_hidden_layers=2)).save_pretrained(
        tmp_path / "mamba"
    )
    (tmp_path / "mamba" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match=r"of type mamba, can read one direction only; allowed: own"):
        load_frozen(spec_of(tmp_path / "mamba", attention="both"))


def test_only_adapters_of_a_decoder_are_trained(frozen: dict[str, Path], tmp_path: Path) -> None:
    for kind, folder in frozen.items():
        pretrained_folder.cache_clear()
        assert not fills_gaps(load_frozen(spec_of(folder)).config)
        tied = ", and would train shared.weight twice, which is encoder.embed_tokens.weight too" if kind == "t5" else ""
        for changes, says in (
            (
                {"trainable": "all"},
                rf"model.trainable = all: .* is no encoder such as BERT{tied}; allowed: heads, lora",
            ),
            ({"trainable": "lora"}, r"model.sentence = first: .* at its first sub-word; allowed: last, mean"),
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
    one, other = (check_pretrained(spec_of(frozen["llama"], prompt=prompt)) for prompt in ("", "query: "))
    assert one != other, "another prompt needs another encoded corpus"


def test_a_vocabulary_is_saved_with_its_prompt(frozen: dict[str, Path], tmp_path: Path) -> None:
    pieces = pretrained_pieces(str(frozen["qwen3"]), "query: ")
    assert pieces is not None
    pieces.save(tmp_path / "saved")
    again = WordPieces.load(tmp_path / "saved")
    assert (again.prompt_pieces, again.start, again.end, again.pad) == (
        pieces.prompt_pieces,
        pieces.start,
        pieces.end,
        pieces.pad,
    )
    assert again.prompt_pieces


@pytest.mark.parametrize(("kind", "whole"), [("qwen3", AutoModelForCausalLM), ("t5", AutoModelForSeq2SeqLM)])
def test_a_checkpoint_with_its_language_model_head_is_read_too(
    kind: str, whole: Any, frozen: dict[str, Path], tmp_path: Path
) -> None:
    """Most folders hold the head with which the model was trained, and T5's the decoder."""
    shutil.copytree(frozen[kind], tmp_path / kind)
    model = whole.from_pretrained(frozen[kind])
    model.save_pretrained(tmp_path / kind)
    one, other = (load_frozen(spec_of(folder)) for folder in (frozen[kind], tmp_path / kind))
    assert encoder_digest(one) == encoder_digest(other)


@pytest.mark.parametrize("kind", FROZEN_KINDS)
def test_a_model_that_was_taken_along_is_the_same_without_its_folder(
    kind: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    spec = spec_of(frozen[kind], attention="both" if kind in DECODERS else "own")
    frozen_encoder.cache_clear()
    take_encoder(spec, tmp_path / "taken")
    elsewhere = spec.model_copy(update={"pretrained": "a name that is nowhere"})
    assert encoder_digest(load_frozen(elsewhere, tmp_path / "taken")) == encoder_digest(frozen_encoder(spec))


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
    encoder, pieces = load_frozen(spec_of(folder)), pretrained_pieces(str(folder))
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
    exact = [state * 64 for state in hidden_states(load_frozen(spec_of(folder)), batch, names)]
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
            encoder = load_frozen(spec_of(folder))
            assert {p.dtype for p in encoder.parameters()} == {expected}
            digests[folder, hardware], keys[folder, hardware] = (
                encoder_digest(encoder),
                check_pretrained(spec_of(folder)),
            )
    assert digests[low, True] == digests[low, False], "a server may have another processor"
    assert keys[low, True] == ["bfloat16", *keys[low, False]], "other states need another encoded corpus"
    assert keys[half, True] == keys[half, False]
    multiplies(monkeypatch, True)
    trained = BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(low), trainable="lora", sentence="last")
    assert check_pretrained(trained) == keys[low, False], "adapters train on float32"
    assert {p.dtype for p in built(trained, tmp_path)[1].parameters()} == {torch.float32}


def test_weights_in_bfloat16_take_half_of_a_gpus_memory(
    frozen: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lowered(frozen["llama"], tmp_path / "low")
    weights = sum(p.numel() for p in load_frozen(spec_of(folder)).parameters())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: (self, device))
    for hardware, each in ((True, 2), (False, 4)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=hardware: has)
        for spare, fits in ((0, True), (-1, False)):
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=weights * each + spare: (free, free))
            frozen_encoder.cache_clear()
            if fits:
                assert frozen_encoder(spec_of(folder))[1].type == "cuda"
            else:
                with pytest.raises(UserError, match=r"its weights take .* GiB, and the GPU has .* GiB free; allowed:"):
                    frozen_encoder(spec_of(folder))
    frozen_encoder.cache_clear()


FLAGS = {
    f"pooling_mode_{way}": False
    for way in ("cls_token", "mean_tokens", "max_tokens", "weightedmean_tokens", "lasttoken")
}
POOLED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3", FLAGS | {"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
    ("qwen3", {"word_embedding_dimension": 16, "pooling_mode": "lasttoken"}, "last"),
    ("gemma3", FLAGS | {"pooling_mode_mean_tokens": True}, "mean"),
    ("bert", FLAGS | {"pooling_mode_cls_token": True}, "first"),
    ("bert", {"pooling_mode": "cls"}, "first"),
]


def pooled(folder: Path, place: Path, found: Any) -> Path:
    """A copy of a model's folder that says how it makes vectors of utterances."""
    shutil.copytree(folder, place)
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(found if isinstance(found, str) else json.dumps(found))
    return place


@pytest.mark.parametrize(("kind", "found", "expected"), POOLED)
def test_an_embedding_models_own_pooling_is_read_from_its_folder(
    kind: str, found: dict[str, Any], expected: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    plain = frozen[kind] if kind in frozen else make_encoder(kind, tmp_path / "made")
    folder = pooled(plain, tmp_path / "pooled", found)
    own, named = (spec_of(folder, sentence=sentence) for sentence in ("own", expected))
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    batch = encode_utterances(UTTERANCES, pieces)
    names = ["sentence_own_last", f"sentence_{expected}_last"]
    one, other = hidden_states(load_frozen(own), batch, names)
    assert torch.equal(one, other)
    assert check_pretrained(own) == [f"sentence {expected}", *check_pretrained(named)], "no other key changes"
    assert check_pretrained(named)[::3] == check_pretrained(spec_of(plain))[::3]
    frozen_encoder.cache_clear()
    take_encoder(own, tmp_path / "taken")  # without 1_Pooling: what it said goes along
    assert torch.equal(hidden_states(load_frozen(own, tmp_path / "taken"), batch, names[:1])[0], one)
    frozen_encoder.cache_clear()


@pytest.mark.parametrize(
    ("kind", "found", "says"),
    [
        ("qwen3", None, r"own: model\.pretrained = .* has no 1_Pooling/config\.json; allowed: mean, first, last"),
        ("qwen3", FLAGS, r"has nothing in its 1_Pooling/config\.json; allowed: mean"),
        (
            "qwen3",
            FLAGS | {"pooling_mode_weightedmean_tokens": True},
            "has weightedmean_tokens in its 1_Pooling",
        ),
        (
            "llama",
            FLAGS | {"pooling_mode_max_tokens": True, "pooling_mode_lasttoken": True},
            r"has max_tokens \+ lasttoken in its",
        ),
        (
            "llama",
            FLAGS | {"pooling_mode_cls_token": True},
            "sentence = own: .* has read only what is before the first",
        ),
        ("llama", "{", r"its 1_Pooling/config\.json cannot be read \("),
        ("llama", "[]", r"its 1_Pooling/config\.json cannot be read \("),
    ],
)
def test_a_pooling_that_is_not_there_or_has_no_value_is_refused(
    kind: str, found: Any, says: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    folder = frozen[kind] if found is None else pooled(frozen[kind], tmp_path / "pooled", found)
    with pytest.raises(UserError, match=says) as caught:
        check_pretrained(spec_of(folder, sentence="own"))
    assert "\n" not in str(caught.value)
