"""Turn words into the inputs of a model: a table with the input of each unique word, and batches looked up in it.

`Features` are public and part of a released model. A `Table` holds the inputs that they give for the words of a corpus.

Shapes: b utterances, t tokens of each, n tokens of all, one utterance after the other; u unique words of a batch,
c characters, d width of a vector, s sub-words.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from edp.spec import UserError
from trainables.config import BERTSpec, CorpusSpec, ModelSpec
from trainables.corpora import load_corpus
from trainables.features.embeddings import WordVectors
from trainables.features.word_pieces import NONE, WordPieces
from trainables.records.files import load_array

MAX_CHARS = 32  # longer words are cut; the longest word of ATIS, SNIPS and NLU-eval has 30
_CHARACTERS = string.digits + string.ascii_letters + string.punctuation
ALPHABET_SIZE = len(_CHARACTERS) + 1  # and one for all other characters
_UNKNOWN_CHAR = 1
_CHAR_IDS = {char: index for index, char in enumerate(_CHARACTERS, start=2)}

Features = WordVectors | WordPieces


def char_ids(words: Sequence[str]) -> np.ndarray:
    """Return the character ids of each word, (W, MAX_CHARS) uint8: 0 after its end, 1 for characters beyond ASCII."""
    ids_wc = np.zeros((len(words), MAX_CHARS), np.uint8)
    for row, word in enumerate(words):
        ids = [_CHAR_IDS.get(char, _UNKNOWN_CHAR) for char in word[:MAX_CHARS]]
        ids_wc[row, : len(ids)] = ids
    return ids_wc


def features_for(model: ModelSpec) -> Features:
    """Return the word vectors or the sub-word vocabulary of a model, read from disk or trained on a public corpus.

    Raises:
        UserError: for a source that is missing or does not fit.
    """
    if isinstance(model, BERTSpec):
        from trainables.features.pretrained import pretrained_pieces  # transformers takes seconds to import

        return pretrained_pieces(model.pretrained, model.prompt) or WordPieces.train(
            public_tokens(model.vocabulary, "model.vocabulary")
        )
    return WordVectors.train(
        public_tokens(model.embeddings.corpus, "model.embeddings.corpus"),
        size=model.embedding_size,
        epochs=model.embeddings.epochs,
    )


def public_tokens(spec: CorpusSpec, field: str) -> list[tuple[str, ...]]:
    """Return the tokens of each utterance of a public corpus, which the recipe calls `field`."""
    return [utterance.tokens for utterance in load_corpus(spec, field).utterances]


def load_features(folder: Path) -> Features:
    """Read the features that `features.save(folder)` wrote."""
    return WordPieces.load(folder) if (folder / "tokenizer.json").is_file() else WordVectors.load(folder)


@dataclass(frozen=True)
class WordTable:
    """The inputs of CLC for each unique word: characters (W, C) uint8 and vectors (W, D) float32."""

    chars: np.ndarray
    vectors: np.ndarray

    def inputs(self, words_n: np.ndarray, lengths_b: np.ndarray) -> tuple[WordInputs, np.ndarray]:
        """Return the inputs of utterances, given in turn, and the number of tokens that are read of each: all."""
        unique_u, row_n = np.unique(words_n, return_inverse=True)
        chars_uc = self.chars[unique_u]
        longest = int((chars_uc > 0).sum(1).max())
        return (
            WordInputs(
                torch.from_numpy(pad(row_n, lengths_b)),
                torch.from_numpy(chars_uc[:, :longest].astype(np.int64)),
                torch.from_numpy(np.ascontiguousarray(self.vectors[unique_u])),
            ),
            lengths_b,
        )


@dataclass(frozen=True)
class PieceTable:
    """The inputs of an encoder for each unique word: the pieces of word w are `pieces[offsets[w]:offsets[w + 1]]`.

    `special` is (pad, start, end, most, initial, *prompt). Without a start or end, that id is `NONE`. The encoder has
    positions for `most` pieces. At the beginning of an utterance, word w has the pieces of row w + `initial` (0 if they
    are the same).
    """

    offsets: np.ndarray
    pieces: np.ndarray
    special: np.ndarray

    def inputs(self, words_n: np.ndarray, lengths_b: np.ndarray) -> tuple[PieceInputs, np.ndarray]:
        """Return the inputs of utterances, given in turn, and the number of tokens that are read of each.

        An encoder has a limited number of positions. Tokens from the first one that does not fit whole are not read:
        they have no loss and are predicted `O`. The first token is always read, cut if necessary.
        """
        pad_id, start_id, end_id, most, initial, *prompt = self.special.tolist()
        before = [start_id, *prompt] if start_id != NONE else prompt
        lead, after = len(before), int(end_id != NONE)
        room = most - lead - after
        begins_n = np.zeros(len(words_n), np.int64)
        begins_n[lengths_b.cumsum() - lengths_b] = initial
        words_n = words_n + begins_n
        counts_n = np.minimum(self.offsets[words_n + 1] - self.offsets[words_n], room)
        counts_bt = pad(counts_n, lengths_b)
        ends_bt = counts_bt.cumsum(1)
        read_bt = (ends_bt <= room) & (np.arange(counts_bt.shape[1]) < lengths_b[:, None])
        read_b = read_bt.sum(1)
        read_n = read_bt[np.arange(counts_bt.shape[1]) < lengths_b[:, None]]
        words_n, counts_n = words_n[read_n], counts_n[read_n]
        within = np.arange(counts_n.sum()) - np.repeat(counts_n.cumsum() - counts_n, counts_n)
        pieces_p = self.pieces[np.repeat(self.offsets[words_n], counts_n) + within]
        pieces_b = np.where(read_bt, counts_bt, 0).sum(1)

        piece_bs = np.full((len(lengths_b), int(pieces_b.max()) + lead + after), pad_id, np.int64)
        position_s = np.arange(piece_bs.shape[1])
        piece_bs[:, :lead] = before
        piece_bs[(position_s >= lead) & (position_s < lead + pieces_b[:, None])] = pieces_p
        if after:
            piece_bs[np.arange(len(piece_bs)), lead + pieces_b] = end_id
        first_bt = np.where(read_bt, lead + ends_bt - counts_bt, 0)[:, : int(read_b.max())]
        last_bt = np.where(read_bt, lead + ends_bt - 1, 0)[:, : int(read_b.max())]
        return (
            PieceInputs(
                torch.from_numpy(piece_bs),
                torch.from_numpy(position_s < lead + pieces_b[:, None] + after),
                torch.from_numpy(np.ascontiguousarray(first_bt)),
                torch.from_numpy(np.ascontiguousarray(last_bt)),
                torch.from_numpy(pieces_b.astype(np.int64) + lead + after),
            ),
            read_b,
        )


Table = WordTable | PieceTable


def make_table(features: Features, words: Sequence[str]) -> Table:
    """Return the inputs that the features give for each of `words`."""
    if isinstance(features, WordVectors):
        return WordTable(char_ids(words), features.vectors(words))
    pieces, initial = features.pieces(words), features.pieces(words, initial=True)
    # Behind a prompt, the first word has a space before it too.
    further = len(words) if initial != pieces and not features.prompt_pieces else 0
    if further:
        pieces += initial
    offsets = np.cumsum([0, *(len(ids) for ids in pieces)])
    flat = np.fromiter((piece for ids in pieces for piece in ids), np.int32, count=int(offsets[-1]))
    special = [features.pad, features.start, features.end, features.max_pieces, further, *features.prompt_pieces]
    return PieceTable(offsets, flat, np.array(special))


def write_table(table: Table, folder: Path) -> None:
    """Write a table to files that `open_table` maps."""
    for one in fields(table):
        np.save(folder / f"word_{one.name}.npy", getattr(table, one.name))


def open_table(folder: Path) -> Table:
    """Map the table that `write_table` wrote."""
    kind = PieceTable if (folder / "word_pieces.npy").is_file() else WordTable
    return kind(*(load_array(folder / f"word_{one.name}.npy") for one in fields(kind)))


def pad(values_n: np.ndarray, lengths_b: np.ndarray) -> np.ndarray:
    """Return rows of the given lengths, in turn in `values_n`, as int64 (B, T), padded with 0."""
    out_bt = np.zeros((len(lengths_b), int(lengths_b.max())), np.int64)
    out_bt[np.arange(out_bt.shape[1]) < lengths_b[:, None]] = values_n
    return out_bt


def encode_utterances(tokens: Sequence[Sequence[str]], features: Features) -> Batch:
    """Encode utterances that are in no corpus, as a batch without labels.

    If an utterance is too long for an encoder (`WordPieces.max_pieces`), its length in the batch is the number of
    tokens that are read.

    Raises:
        UserError: for no utterances, or one without tokens.
    """
    if not tokens or not all(tokens):
        raise UserError("utterances: one has no tokens, or there is none; allowed: at least one, each with a token")
    ids: dict[str, int] = {}
    words_n = np.array([ids.setdefault(word, len(ids)) for utterance in tokens for word in utterance])
    return make_batch(make_table(features, list(ids)), words_n, np.array([len(utterance) for utterance in tokens]))


def make_batch(
    table: Table,
    words_n: np.ndarray,
    lengths_b: np.ndarray,
    tags_n: np.ndarray | None = None,
    intent_b: np.ndarray | None = None,
) -> Batch:
    """Return a batch of utterances, given in turn."""
    inputs, read_b = table.inputs(words_n, lengths_b)
    return as_batch(inputs, read_b, lengths_b, tags_n, intent_b)


def as_batch(
    inputs: WordInputs | PieceInputs | StateInputs,
    read_b: np.ndarray,
    lengths_b: np.ndarray,
    tags_n: np.ndarray | None = None,
    intent_b: np.ndarray | None = None,
) -> Batch:
    """Return a batch of inputs, with `read_b` tokens each; the tags are those of all `lengths_b` tokens, in turn."""
    mask_bt = np.arange(int(read_b.max())) < read_b[:, None]
    tags_bt = None if tags_n is None else np.where(mask_bt, pad(tags_n, lengths_b)[:, : mask_bt.shape[1]], 0)
    return Batch(
        inputs,
        torch.from_numpy(read_b.astype(np.int64)),
        torch.from_numpy(mask_bt),
        None if tags_bt is None else torch.from_numpy(tags_bt),
        None if intent_b is None else torch.from_numpy(intent_b.astype(np.int64)),
    )


@dataclass(frozen=True)
class _Tensors:
    """Tensors that move to a device together; some stay on the CPU."""

    stay: ClassVar[tuple[str, ...]] = ()

    def to(self, device: torch.device | str) -> Self:
        """Return the tensors on `device`."""
        found = {name: one for name, one in vars(self).items() if isinstance(one, Tensor | _Tensors)}
        return replace(self, **{name: one.to(device) for name, one in found.items() if name not in self.stay})


@dataclass(frozen=True)
class WordInputs(_Tensors):
    """The inputs of CLC: a table of the batch's unique words, so that each is processed once, and rows of it."""

    word_bt: Tensor  # int64, the row of each token in the two tables; 0 in the padding
    chars_uc: Tensor  # int64, 0 beyond the word
    vectors_ud: Tensor  # float32

    def select(self, index: list[int], lengths_b: Tensor) -> WordInputs:
        """Return the inputs of some utterances of a batch whose utterances have these lengths."""
        longest = int(lengths_b[index].max())
        return WordInputs(self.word_bt[index, :longest], self.chars_uc, self.vectors_ud)


@dataclass(frozen=True)
class PieceInputs(_Tensors):
    """The inputs of an encoder: sub-words with special ones around them, and where each token's begin and end."""

    stay = ("pieces_b",)
    piece_bs: Tensor  # int64
    piece_mask_bs: Tensor  # bool
    first_bt: Tensor  # int64, positions in S; 0 in the padding
    last_bt: Tensor  # int64, likewise
    pieces_b: Tensor  # int64, number of sub-words of each utterance, including special ones; always on the CPU

    def select(self, index: list[int], lengths_b: Tensor) -> PieceInputs:
        """Return the inputs of some utterances, as wide as before, of a batch whose utterances have these lengths."""
        return replace(self, **{name: tensor[index] for name, tensor in vars(self).items()})


@dataclass(frozen=True)
class StateInputs(_Tensors):
    """The inputs of heads on a frozen encoder: whitened states, each followed by a constant."""

    token_nd: Tensor  # float32, the tokens of all utterances in turn, without padding
    sentence_bd: Tensor  # float32
    kept: dict[str, Any] = field(default_factory=dict)  # a cache of results, for batches that are repeated

    def to(self, device: torch.device | str) -> Self:
        """Return the inputs on `device`; what was kept is of this one."""
        return self if self.token_nd.device == torch.device(device) else replace(super().to(device), kept={})

    def select(self, index: list[int], lengths_b: Tensor) -> StateInputs:
        """Return the inputs of some utterances of a batch whose utterances have these lengths."""
        tokens = self.token_nd.split(lengths_b.tolist())
        return StateInputs(torch.cat([tokens[i] for i in index]), self.sentence_bd[index])


@dataclass(frozen=True)
class Batch(_Tensors):
    """Utterances, padded to the longest; labels are None if they are unknown."""

    stay = ("lengths_b",)
    inputs: WordInputs | PieceInputs | StateInputs
    lengths_b: Tensor  # int64, at least 1; always on the CPU: packing needs them there, and need not wait for a GPU
    mask_bt: Tensor  # bool, True on tokens
    tags_bt: Tensor | None = None  # int64, 0 in the padding
    intent_b: Tensor | None = None  # int64
    key_b: Tensor | None = None  # int32, keys of each utterance's dropout; None: use PyTorch's generator

    def __len__(self) -> int:
        return len(self.lengths_b)

    def select_examples(self, index: list[int]) -> Batch:
        """Return some of the utterances. `edp.mixing` asks for them, to run one without the others."""
        # The packing of CLC expects no padding beyond the longest.
        width = int(self.lengths_b[index].max()) if isinstance(self.inputs, WordInputs) else self.mask_bt.shape[1]
        return Batch(
            self.inputs.select(index, self.lengths_b),
            self.lengths_b[index],
            self.mask_bt[index, :width],
            None if self.tags_bt is None else self.tags_bt[index, :width],
            None if self.intent_b is None else self.intent_b[index],
            None if self.key_b is None else self.key_b[index],
        )
