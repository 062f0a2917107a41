"""What a word's string becomes: characters of a public alphabet, or pieces of a public WordPiece vocabulary;
and labels.

Both depend on the string alone, so a model that is released with them carries nothing of its private corpus.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from edp.spec import UserError
from trainables.corpora.types import Utterance

MAX_CHARS = 32  # longer words are cut; the longest word of ATIS, SNIPS and NLU-eval has 30
_CHARACTERS = string.digits + string.ascii_letters + string.punctuation
ALPHABET_SIZE = len(_CHARACTERS) + 1  # and one for every other character
_UNKNOWN_CHAR = 1
_CHAR_IDS = {char: index for index, char in enumerate(_CHARACTERS, start=2)}

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORDPIECES = 8_000  # of a vocabulary that we train ourselves, on a public corpus of thousands of utterances
_PIECE_CHARS = 5  # longest part of a word that is no whole word
MAX_PIECES = 512


@dataclass(frozen=True)
class Labels:
    """The public schema: intents, and tags with `O` first and then B-x, I-x of each slot type x in turn."""

    intents: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        types = [tag[2:] for tag in self.tags[1::2]]
        if self.tags != _tags_of(types):
            raise ValueError(f"tags {self.tags} are not O and then B-x, I-x of each type x")

    @classmethod
    def of(cls, utterances: Iterable[Utterance]) -> Labels:
        """Every intent and slot type of the utterances, sorted."""
        intents: set[str] = set()
        tags: set[str] = set()
        for utterance in utterances:
            intents.add(utterance.intent)
            tags.update(utterance.tags)
        return cls(tuple(sorted(intents)), _tags_of(sorted({tag[2:] for tag in tags if tag != "O"})))

    def to_dict(self) -> dict[str, list[str]]:
        """For JSON."""
        return {"intents": list(self.intents), "tags": list(self.tags)}

    @classmethod
    def from_dict(cls, values: dict[str, list[str]]) -> Labels:
        """Read what `to_dict` gave."""
        return cls(tuple(values["intents"]), tuple(values["tags"]))


def _tags_of(types: Iterable[str]) -> tuple[str, ...]:
    return ("O", *(prefix + name for name in types for prefix in ("B-", "I-")))


def char_ids(words: Sequence[str]) -> np.ndarray:
    """Characters of each word, (W, MAX_CHARS) uint8: 0 beyond it, 1 for one that is not printable ASCII."""
    ids_wc = np.zeros((len(words), MAX_CHARS), np.uint8)
    for row, word in enumerate(words):
        ids = [_CHAR_IDS.get(char, _UNKNOWN_CHAR) for char in word[:MAX_CHARS]]
        ids_wc[row, : len(ids)] = ids
    return ids_wc


class WordPieces:
    """A WordPiece vocabulary with BERT's special tokens.

    Args:
        tokenizer: of the `tokenizers` library.
        source: where it came from, in words.
    """

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        ids = [index for index in map(tokenizer.token_to_id, _SPECIAL[:4]) if index is not None]
        if len(ids) < 4:
            raise UserError(f"model.pretrained: the vocabulary of {source} lacks one of {', '.join(_SPECIAL[:4])}")
        self.pad, self.unknown, self.start, self.end = ids
        self.source = source
        self._tokenizer = tokenizer

    @property
    def size(self) -> int:
        """Number of pieces, the special ones too."""
        return int(self._tokenizer.get_vocab_size())

    @classmethod
    def train(cls, utterances: Iterable[Sequence[str]]) -> WordPieces:
        """A lower-case vocabulary of public token sequences; the same sequences give the same vocabulary."""
        tokenizer = Tokenizer(models.WordPiece(_vocabulary(utterances), unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return cls(tokenizer, "WordPiece trained on a public corpus")

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Piece ids of each word, at least one."""
        encodings = self._tokenizer.encode_batch(list(words), add_special_tokens=False)
        return [encoding.ids or [self.unknown] for encoding in encodings]

    def save(self, folder: Path) -> None:
        """Write to a new folder that `load` reads."""
        folder.mkdir(parents=True)
        self._tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "source.txt").write_text(self.source, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> WordPieces:
        """Read what `save` wrote."""
        source = (folder / "source.txt").read_text(encoding="utf-8")
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), source)


def _vocabulary(utterances: Iterable[Sequence[str]]) -> dict[str, int]:
    """Special tokens, characters, and the most frequent words, beginnings and later parts of words.

    Counted rather than merged pair by pair: the trainer of `tokenizers` breaks ties at random, and a
    vocabulary that differs from run to run would make runs differ. WordPiece takes the longest piece that
    fits, whatever they are.
    """
    words = Counter(word.lower() for tokens in utterances for word in tokens)
    counts: Counter[str] = Counter()
    for word, count in words.items():
        counts[word] += count
        for start in range(len(word)):
            for end in range(start + 2, min(start + _PIECE_CHARS, len(word)) + 1):
                if (start, end) != (0, len(word)):
                    counts[("##" if start else "") + word[start:end]] += count
    frequent = sorted((piece for piece, count in counts.items() if count > 1), key=lambda p: (-counts[p], p))
    characters = string.digits + string.ascii_lowercase + string.punctuation
    always = [*_SPECIAL, *characters, *("##" + char for char in characters)]
    chosen = dict.fromkeys([*always, *frequent[:_WORDPIECES]])
    return {piece: index for index, piece in enumerate(chosen)}
