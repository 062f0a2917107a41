"""Small encoders of each architecture with tokenizers of their own, saved to folders as pretrained ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)
from transformers.models.auto import AutoModel

from trainables.corpora import generate
from trainables.features.word_pieces import WordPieces

TEXTS = [" ".join(utterance.tokens) for utterance in generate("communication", 300, seed=1)]
POSITIONS = 40
_BERTS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
_ROBERTAS = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
_SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}


def word_pieces() -> Tokenizer:
    tokenizer = WordPieces.train([text.split() for text in TEXTS])._tokenizer
    _between(tokenizer, "[CLS]", "[SEP]")
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


def unigrams() -> Tokenizer:
    """SentencePiece's as DeBERTa's: every word has its space, also the first."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=list(_BERTS.values()), unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    _between(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


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
    "electra": (
        lambda **c: ElectraConfig(**_SIZES, embedding_size=8, max_position_embeddings=POSITIONS, **c),
        _BERTS,
    ),
    "deberta-v2": (_deberta, _BERTS),
    "modernbert": (
        lambda **c: ModernBertConfig(**_SIZES, max_position_embeddings=POSITIONS, local_attention=8, **c),
        _BERTS,
    ),
}


def make_encoder(kind: str, folder: Path, **changes: Any) -> Path:
    """An encoder and its tokenizer in `folder`; the weights are random, and always the same."""
    config_of, names = KINDS[kind]
    tokenizer = {"deberta-v2": unigrams, "roberta": lambda: byte_pairs(names), "modernbert": lambda: byte_pairs(names)}
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModel.from_config(config)
        for parameter in model.parameters():  # BERT's initial weights are so small that layers hardly differ
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder)
    return folder
