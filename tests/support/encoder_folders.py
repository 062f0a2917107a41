"""Small encoders of each architecture with tokenizers of their own, saved to folders as pretrained ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    CONFIG_MAPPING,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    XLMRobertaConfig,
)
from transformers.models.auto import AutoModel

from tests.support.toy import BERT
from trainables.config import BERTSpec, CorpusSpec, FeaturesSpec
from trainables.corpora import generate
from trainables.features.word_pieces import WordPieces, lower_case_tokenizer

TEXTS = [" ".join(utterance.tokens) for utterance in generate("communication", 300, seed=1)]
POSITIONS = 40
_BERTS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
_ROBERTAS = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
_SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}


def word_pieces() -> Tokenizer:
    tokenizer = WordPieces.train([text.split() for text in TEXTS])._tokenizer
    _between(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def mpnets() -> Tokenizer:
    """WordPiece as MPNet's: BERT's between RoBERTa's special tokens."""
    own = [*_ROBERTAS.values(), *WordPieces.train([text.split() for text in TEXTS])._tokenizer.get_vocab()]
    vocabulary = {piece: index for index, piece in enumerate(own)}
    tokenizer = lower_case_tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    _between(tokenizer, "<s>", "</s>")
    return tokenizer


def byte_pairs(names: dict[str, str]) -> Tokenizer:
    """Byte-level BPE as RoBERTa's: a word that begins a text has no space before it, every other one has."""
    tokenizer = Tokenizer(models.BPE(unk_token=names["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = [names["cls_token"], names["pad_token"], names["sep_token"], names["unk_token"]]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    _between(tokenizer, names["cls_token"], names["sep_token"])
    return tokenizer


def unigrams(names: dict[str, str] = _BERTS) -> Tokenizer:
    """SentencePiece's as DeBERTa's: every word has its space, also the first."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=list(names.values()), unk_token=names["unk_token"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    _between(tokenizer, names["cls_token"], names["sep_token"])
    return tokenizer


LLAMA3 = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")


def split_byte_pairs(pattern: str, special: list[str], around: str) -> Tokenizer:
    """Byte-level BPE within the matches of a pattern, as Llama 3 and Qwen have it; `around` is a template or empty."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = _template(tokenizer, around) if around else processors.ByteLevel(trim_offsets=False)
    return tokenizer


def spaced_byte_pairs(special: list[str], around: str, *, prepend: bool) -> Tokenizer:
    """BPE on whole texts with ▁ for a space, as Llama 2 (with one before each text) and Gemma have it.

    A character that is not in the vocabulary becomes its bytes.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prepend else spaces
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    every = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=every, show_progress=False)
    tokenizer.train_from_iterator(
        [f"{space}{word}" for text in TEXTS for word in text.split() for space in ("", " ")], trainer
    )
    tokenizer.post_processor = _template(tokenizer, around)
    return tokenizer


def t5_unigrams() -> Tokenizer:
    """SentencePiece's as T5's: nothing before an utterance, </s> after it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = _template(tokenizer, "$A </s>")
    return tokenizer


def _template(tokenizer: Tokenizer, around: str) -> processors.TemplateProcessing:
    """The post-processor of a template such as "<s> $A"."""
    special = [(word, tokenizer.token_to_id(word)) for word in around.split() if word != "$A"]
    return processors.TemplateProcessing(single=around, special_tokens=special)


def _between(tokenizer: Tokenizer, first: str, last: str) -> None:
    ids = [(name, tokenizer.token_to_id(name)) for name in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=ids)


def _distilbert(**common: Any) -> PreTrainedConfig:
    sizes = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}
    return DistilBertConfig(**sizes, max_position_embeddings=POSITIONS, **common)


def _deberta(**common: Any) -> PreTrainedConfig:
    relative: dict[str, Any] = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
    return DebertaV2Config(
        **_SIZES, **relative, position_biased_input=False, max_position_embeddings=POSITIONS, **common
    )


KINDS: dict[str, tuple[Any, dict[str, str]]] = {
    "bert": (lambda **c: BertConfig(**_SIZES, max_position_embeddings=POSITIONS, **c), _BERTS),
    # two positions more, since the first two are never used
    "roberta": (
        lambda **c: RobertaConfig(**_SIZES, max_position_embeddings=POSITIONS + 2, type_vocab_size=1, **c),
        _ROBERTAS,
    ),
    "distilbert": (_distilbert, _BERTS),
    "electra": (lambda **c: ElectraConfig(**_SIZES, embedding_size=8, max_position_embeddings=POSITIONS, **c), _BERTS),
    "deberta-v2": (_deberta, _BERTS),
    "modernbert": (
        lambda **c: ModernBertConfig(**_SIZES, max_position_embeddings=POSITIONS, local_attention=8, **c),
        _BERTS,
    ),
    "mpnet": (lambda **c: MPNetConfig(**_SIZES, max_position_embeddings=POSITIONS + 2, **c), _ROBERTAS),
    "xlm-roberta": (
        lambda **c: XLMRobertaConfig(**_SIZES, max_position_embeddings=POSITIONS + 2, type_vocab_size=1, **c),
        _ROBERTAS,
    ),
}


_LLAMAS: dict[str, Any] = {**_SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
_POSITIONS = {"max_position_embeddings": POSITIONS}

FROZEN_KINDS: dict[str, tuple[Any, Any]] = {
    "llama": (
        lambda **c: LlamaConfig(**_LLAMAS, **_POSITIONS, **c),
        lambda: split_byte_pairs(LLAMA3, ["<|begin_of_text|>"], "<|begin_of_text|> $A"),
    ),
    "llama2": (
        lambda **c: LlamaConfig(**_LLAMAS, **_POSITIONS, **c),
        lambda: spaced_byte_pairs(["<unk>", "<s>", "</s>"], "<s> $A", prepend=True),
    ),
    "qwen3": (
        lambda **c: Qwen3Config(**(_LLAMAS | _POSITIONS | c)),
        lambda: split_byte_pairs(QWEN, ["<|endoftext|>"], ""),
    ),
    "gemma3": (
        lambda **c: Gemma3TextConfig(**_LLAMAS, **_POSITIONS, sliding_window=4, query_pre_attn_scalar=8, **c),
        lambda: spaced_byte_pairs(["<pad>", "<bos>", "<unk>"], "<bos> $A", prepend=False),
    ),
    "gpt2": (
        lambda **c: GPT2Config(n_embd=16, n_layer=3, n_head=2, n_positions=POSITIONS, **c),
        lambda: split_byte_pairs(QWEN, ["<|endoftext|>"], ""),
    ),
    "t5": (lambda **c: T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=3, num_heads=2, **c), t5_unigrams),
}
"""Models that are read frozen: decoders, and the encoder of an encoder-decoder."""


_SOUND = (
    "albert bert data2vec-text deberta-v2 distilbert electra luke modernbert mpnet nomic_bert rembert roberta roformer"
    " bloom cohere2 gemma2 gemma3_text gpt_neox llama mistral opt phi3 qwen3 t5 umt5"
)
ARCHITECTURES: dict[str, str] = {
    **dict.fromkeys(_SOUND.split(), ""),
    **dict.fromkeys(("convbert", "fnet", "mobilebert", "nystromformer", "yoso"), "meets"),
    **dict.fromkeys(("big_bird", "esm", "flaubert", "xlm"), "dropout"),
}
"""What is wrong with an architecture: nothing, its utterances meet, or it draws its dropout for a whole batch."""
_TINY: dict[str, Any] = {
    **{
        "vocab_size": 200,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    },
    **{"intermediate_size": 48, "head_dim": 8, "d_kv": 8, "embedding_size": 16, "intra_bottleneck_size": 16},
    **{"max_position_embeddings": 64, "pad_token_id": 0, "pad_index": 2, "mask_token_id": 32},
    **dict.fromkeys(("entity_vocab_size", "shape_vocab_size", "pronunciation_vocab_size"), 50),
}


def tiny_config(model_type: str) -> PreTrainedConfig:
    """A small configuration of an architecture, with those of `_TINY` that it has."""
    kind = CONFIG_MAPPING[model_type]
    names: dict[str, str] = getattr(kind, "attribute_map", {})
    own = kind().to_dict()
    return kind(**{names.get(key, key): value for key, value in _TINY.items() if names.get(key, key) in own})


def _save_random(config: PreTrainedConfig, folder: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModel.from_config(config)
        for parameter in model.parameters():  # BERT's initial weights are so small that layers hardly differ
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder)


def make_frozen(kind: str, folder: Path, **changes: Any) -> Path:
    """A model of `FROZEN_KINDS` and its tokenizer in `folder`; the weights are random, and always the same."""
    config_of, tokenizer_of = FROZEN_KINDS[kind]
    made = tokenizer_of()
    vocab = made.get_vocab()
    pad = vocab.get("<pad>")
    config = config_of(
        vocab_size=made.get_vocab_size() + 3, pad_token_id=pad, bos_token_id=0, eos_token_id=0, **changes
    )
    _save_random(config, folder)
    PreTrainedTokenizerFast(
        tokenizer_object=made, **({"pad_token": "<pad>"} if pad is not None else {})
    ).save_pretrained(folder)
    return folder


def make_encoder(kind: str, folder: Path, **changes: Any) -> Path:
    """An encoder and its tokenizer in `folder`; the weights are random, and always the same."""
    config_of, names = KINDS[kind]
    tokenizer = {
        "deberta-v2": unigrams,
        "roberta": lambda: byte_pairs(names),
        "modernbert": lambda: byte_pairs(names),
        "mpnet": mpnets,
        "xlm-roberta": lambda: unigrams(names),
    }
    made = tokenizer.get(kind, word_pieces)()
    ids = {name: made.token_to_id(token) for name, token in names.items()}
    config = config_of(
        vocab_size=made.get_vocab_size() + 3,  # often padded to a round number
        pad_token_id=ids["pad_token"],
        bos_token_id=ids["cls_token"],
        eos_token_id=ids["sep_token"],
        **({"cls_token_id": ids["cls_token"], "sep_token_id": ids["sep_token"]} if kind == "modernbert" else {}),
        **changes,
    )
    _save_random(config, folder)
    PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder)
    return folder


ODD = [
    "it 's 12:30 , don't !",
    "Zürich naïve ÀÉ",
    "今日 は rain ☂ 🙂🙂",
    "a",
    "1234567 7th $5.99",
    "e\u0301 cafe\u0301 ﬁne",
]
UTTERANCES = [text.split() for text in (*TEXTS[:3], *ODD)]


def frozen_spec(folder: Path, **changes: Any) -> BERTSpec:
    """Return heads on the frozen model of a folder, with other settings of its features."""
    given: dict[str, Any] = {"layers": "2", "public": (CorpusSpec(name="video", utterances=20),), "word": "last"}
    features = FeaturesSpec(**(given | changes))
    return BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(folder), trainable="heads", features=features)
