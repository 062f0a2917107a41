"""A corpus of a few utterances, and what encodes it, small enough for every test."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.config import BERTSpec, CLCSpec, CorpusSpec, EmbeddingsSpec, ModelSpec
from trainables.corpora.types import Splits, Utterance
from trainables.features.embeddings import WordVectors
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.word_pieces import WordPieces

PUBLIC = CorpusSpec(name="public")
CLC = CLCSpec(
    embeddings=EmbeddingsSpec(corpus=PUBLIC), embedding_size=8, hidden_size=6, char_filters=5, char_embedding_size=4
)
BERT = BERTSpec(vocabulary=PUBLIC, pretrained=None, hidden_size=8, layers=2, heads=2)
PUBLIC_TOKENS = [["play", "a", "song", "by", "queen"], ["what", "is", "the", "weather", "in", "rome"], ["call", "me"]]


def utterance(text: str, tags: str, intent: str) -> Utterance:
    return Utterance(tuple(text.split()), tuple(tags.split()), intent)


TRAIN = [
    utterance("call my parents at 0123", "O O B-contact O B-number", "call"),
    utterance("stop", "O", "stop"),
    utterance("call uncle bob now please", "O B-contact I-contact O O", "call"),
    utterance("play überraschung by queen", "O B-song O B-artist", "play"),
    utterance("play the best song of all times ever", "O O O O O O O O", "play"),
]
SPLITS = Splits(train=TRAIN, valid=TRAIN[1:3], test=[TRAIN[0], utterance("ring bob", "O B-contact", "call"), TRAIN[4]])


def features(model: ModelSpec) -> WordVectors | WordPieces:
    if isinstance(model, BERTSpec):
        return WordPieces.train(PUBLIC_TOKENS)
    rng = np.random.default_rng(0)
    words = sorted({word for tokens in PUBLIC_TOKENS for word in tokens})
    size = model.embedding_size
    return WordVectors(
        words,
        rng.standard_normal((len(words), size)).astype(np.float32),
        rng.standard_normal((50, size)).astype(np.float32),
    )


def encoded(model: ModelSpec, folder: Path, splits: Splits = SPLITS) -> EncodedCorpus:
    return encode(splits, model, folder / model.kind, features=features(model))
