"""Turn words into pieces of a public vocabulary.

Pieces depend on the word's string alone, so a model that is released with them carries nothing of its private corpus.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from edp.spec import UserError

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORDPIECES = 8_000  # of a vocabulary that we train ourselves, on a public corpus of thousands of utterances
_PIECE_CHARS = 5  # longest part of a word that is no whole word
MAX_PIECES = 512  # the special ones too; fewer where a pretrained encoder has fewer positions


class WordPieces:
    """A vocabulary of sub-words (WordPiece, BPE or Unigram) and the special tokens around an utterance.

    Args:
        tokenizer: of the `tokenizers` library; its post-processor, where it has one, says which tokens come first and
            last.
        source: its origin, in words.
        pad: id of the padding, where its name does not tell ([PAD] or <pad>).
        max_pieces: how many a model has positions for, the special ones too.

    Raises:
        UserError: for a vocabulary that lacks a special token.
    """

    def __init__(
        self, tokenizer: Tokenizer, source: str, *, pad: int | None = None, max_pieces: int = MAX_PIECES
    ) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.source = source
        self.max_pieces = max_pieces
        self._tokenizer = tokenizer
        self.pad = self._special("[PAD]", "<pad>") if pad is None else pad
        self.unknown = self._special(getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
        self.start, self.end = self._around()

    def _special(self, *names: str | None) -> int:
        found = (self._tokenizer.token_to_id(name) for name in names if name)
        index = next((index for index in found if index is not None), None)
        if index is None:
            wanted = " and ".join(dict.fromkeys(name for name in names if name))
            raise UserError(
                f"model.pretrained: the vocabulary of {self.source} lacks {wanted}; allowed: one with either"
            )
        return index

    def _around(self) -> tuple[int, int]:
        nothing = self._tokenizer.encode("")
        around = [index for index, special in zip(nothing.ids, nothing.special_tokens_mask, strict=True) if special]
        if not around:  # no post-processor
            return self._special("[CLS]", "<s>"), self._special("[SEP]", "</s>")
        if len(around) != 2:
            raise UserError(
                f"model.pretrained: the tokenizer of {self.source} puts {len(around)} special tokens around an "
                "utterance; allowed: one before it and one after it"
            )
        return around[0], around[1]

    @property
    def size(self) -> int:
        """Number of pieces, the special ones too."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def mask(self) -> int | None:
        """The piece for a word left out; None where the vocabulary has none."""
        found = (self._tokenizer.token_to_id(name) for name in ("[MASK]", "<mask>"))
        return next((index for index in found if index is not None), None)

    @classmethod
    def train(cls, utterances: Iterable[Sequence[str]]) -> WordPieces:
        """Train a lower-case vocabulary on public token sequences; the same sequences give the same vocabulary."""
        tokenizer = Tokenizer(models.WordPiece(_vocabulary(utterances), unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = _normalizer(), _pre_tokenizer()
        return cls(tokenizer, "WordPiece trained on a public corpus")

    def pieces(self, words: Sequence[str], *, initial: bool = False) -> list[list[int]]:
        """Return the piece ids of each word, at least one, as they stand in a text with a space between words.

        Byte-level and SentencePiece vocabularies keep the space before a word as a part of it.

        Args:
            initial: the pieces of the words at the beginning of a text, where some vocabularies have no space.
        """
        texts = list(words) if initial else [f" {word}" for word in words]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids or [self.unknown] for encoding in encodings]

    def save(self, folder: Path) -> None:
        """Write to a new folder that `load` reads."""
        folder.mkdir(parents=True)
        self.save_tokenizer(folder)
        about = {"source": self.source, "pad": self.pad, "max_pieces": self.max_pieces}
        (folder / "pieces.json").write_text(json.dumps(about), encoding="utf-8")

    def save_tokenizer(self, folder: Path) -> None:
        """Write `tokenizer.json`, as beside an encoder's weights."""
        self._tokenizer.save(str(folder / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path) -> WordPieces:
        """Read what `save` wrote."""
        about: dict[str, Any] = json.loads((folder / "pieces.json").read_text(encoding="utf-8"))
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), **about)


def _normalizer() -> normalizers.Normalizer:
    return normalizers.BertNormalizer(lowercase=True)


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.BertPreTokenizer()


def _as_seen(word: str) -> list[str]:
    """Return the words that WordPiece looks up: for most alphabets without accents, for Chinese each character."""
    if word.isascii():
        return [word.lower()]
    return [part for part, _ in _pre_tokenizer().pre_tokenize_str(_normalizer().normalize_str(word))]


def _vocabulary(utterances: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return special tokens, characters, and the most frequent words, beginnings and later parts of words.

    Counted rather than merged pair by pair: the trainer of `tokenizers` breaks ties at random, and a
    vocabulary that differs from run to run would make runs differ. WordPiece takes the longest piece that
    fits, whatever they are.
    """
    words = Counter(part for tokens in utterances for word in tokens for part in _as_seen(word))
    counts: Counter[str] = Counter()
    for word, count in words.items():
        counts[word] += count
        for start in range(len(word)):
            for end in range(start + 2, min(start + _PIECE_CHARS, len(word)) + 1):
                if (start, end) != (0, len(word)):
                    counts[("##" if start else "") + word[start:end]] += count
    frequent = sorted((piece for piece, count in counts.items() if count > 1), key=lambda p: (-counts[p], p))
    other = sorted({char for word in words if not word.isascii() for char in word if not char.isascii()})
    characters = [*string.digits, *string.ascii_lowercase, *string.punctuation, *other]
    always = [*_SPECIAL, *characters, *("##" + char for char in characters)]
    chosen = dict.fromkeys([*always, *frequent[:_WORDPIECES]])
    return {piece: index for index, piece in enumerate(chosen)}
