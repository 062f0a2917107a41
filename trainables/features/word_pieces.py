"""Turn words into pieces (sub-words) of a public vocabulary, and count how much of a corpus it can read.

Pieces depend only on the string of a word, so a model that is released with them reveals nothing of its private corpus.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from edp.spec import UserError
from trainables.corpora.types import Utterance

_NORMALIZER = normalizers.BertNormalizer(lowercase=True)
_PRE_TOKENIZER = pre_tokenizers.BertPreTokenizer()
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORDPIECES = 8_000  # the size of a vocabulary that is trained on a public corpus of thousands of utterances
_PIECE_CHARS = 5  # the most characters of a piece that is not a whole word
NONE = -1
"""In place of the id of a special token: there is none."""
_ANCHOR = "a"
MAX_PIECES = 512  # of an utterance, including special ones; less if a pretrained encoder has fewer positions


class WordPieces:
    """A vocabulary of sub-words (WordPiece, BPE or Unigram) and the special tokens around an utterance.

    Args:
        tokenizer: a tokenizer of the `tokenizers` library; its post-processor, if any, gives the first and last token.
        source: its origin, for messages.
        pad: the id of the padding; None: that of [PAD] or <pad>.
        max_pieces: the number of pieces that a model has positions for, including special ones.
        prompt: public text before each utterance, such as "query: "; see `FeaturesSpec.prompt`.
        bare: True for a decoder's vocabulary. It may lack special tokens, and an utterance then has none around it.

    Raises:
        UserError: for a vocabulary that lacks a special token, or a prompt that leaves no room for an utterance.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: str,
        *,
        pad: int | None = None,
        max_pieces: int = MAX_PIECES,
        prompt: str = "",
        bare: bool = False,
    ) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.source = source
        self.max_pieces = max_pieces
        self.bare = bare
        self.prompt = prompt
        self._tokenizer = tokenizer
        self.pad = self._special("[PAD]", "<pad>") if pad is None else pad
        self.unknown = self._special(getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
        self.start, self.end = self._around()
        self.prompt_pieces = tokenizer.encode(prompt.rstrip(), add_special_tokens=False).ids if prompt.strip() else []
        if len(self.prompt_pieces) > max_pieces // 2:
            raise UserError(
                f"model.features.prompt has {len(self.prompt_pieces)} pieces; "
                f"allowed: at most {max_pieces // 2}, half of what {source} has positions for"
            )

    def _special(self, *names: str | None) -> int:
        """Return the id of the first of `names` that the vocabulary has."""
        found = (self._tokenizer.token_to_id(name) for name in names if name)
        index = next((index for index in found if index is not None), None)
        if index is None and self.bare:
            return self.pad
        if index is None:
            wanted = " and ".join(dict.fromkeys(name for name in names if name))
            raise UserError(
                f"model.pretrained: the vocabulary of {self.source} lacks {wanted}; allowed: one with either"
            )
        return index

    def _around(self) -> tuple[int, int]:
        """Return the ids of the tokens before and after an utterance; `NONE` for no such token."""
        encoded = self._tokenizer.encode(_ANCHOR)
        own = self._tokenizer.encode(_ANCHOR, add_special_tokens=False).ids
        before = encoded.special_tokens_mask.index(0) if 0 in encoded.special_tokens_mask else 0
        first, last = encoded.ids[:before], encoded.ids[before + len(own) :]
        if not (first or last or self.bare):  # no post-processor
            return self._special("[CLS]", "<s>"), self._special("[SEP]", "</s>")
        if len(first) > 1 or len(last) > 1:
            raise UserError(
                f"model.pretrained: the tokenizer of {self.source} puts {len(first)} special tokens before and "
                f"{len(last)} after an utterance; allowed: at most one before it and one after it"
            )
        return first[0] if first else NONE, last[0] if last else NONE

    @property
    def size(self) -> int:
        """The number of pieces, including special ones."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def mask(self) -> int | None:
        """The piece for a masked word; None if the vocabulary has none."""
        found = (self._tokenizer.token_to_id(name) for name in ("[MASK]", "<mask>"))
        return next((index for index in found if index is not None), None)

    @classmethod
    def train(cls, utterances: Iterable[Sequence[str]]) -> WordPieces:
        """Make a lower-case vocabulary from public token sequences; the same sequences give the same vocabulary."""
        tokenizer = lower_case_tokenizer(models.WordPiece(_vocabulary(utterances), unk_token="[UNK]"))
        return cls(tokenizer, "WordPiece trained on a public corpus")

    def pieces(self, words: Sequence[str], *, initial: bool = False) -> list[list[int]]:
        """Return the piece ids of each word, at least one, as in a text with a space before the word.

        Byte-level and SentencePiece vocabularies treat the space before a word as a part of it. Some of them add a
        space before any text, so a word with a space before it is read behind another word, from where that one ends.

        Args:
            initial: True for the pieces of a word without a space before it, at the beginning of a text.
        """
        texts = list(words) if initial else [f"{_ANCHOR} {word}" for word in words]
        begin = 0 if initial else len(_ANCHOR)
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        found = ([i for i, (_, end) in zip(e.ids, e.offsets, strict=True) if end > begin] for e in encodings)
        return [ids or [self.unknown] for ids in found]

    def save(self, folder: Path) -> None:
        """Write to a new folder that `load` reads."""
        folder.mkdir(parents=True)
        self.save_tokenizer(folder)
        about = {"source": self.source, "pad": self.pad, "max_pieces": self.max_pieces}
        about |= {"prompt": self.prompt, "bare": self.bare}
        (folder / "pieces.json").write_text(json.dumps(about), encoding="utf-8")

    def save_tokenizer(self, folder: Path) -> None:
        """Write `tokenizer.json`, which belongs beside the weights of an encoder."""
        self._tokenizer.save(str(folder / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path) -> WordPieces:
        """Read the vocabulary that `save` wrote."""
        about: dict[str, Any] = json.loads((folder / "pieces.json").read_text(encoding="utf-8"))
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), **about)


def lower_case_tokenizer(model: models.WordPiece) -> Tokenizer:
    """Return a tokenizer that prepares text as BERT does, in lower case."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = _NORMALIZER, _PRE_TOKENIZER
    return tokenizer


def _as_seen(word: str) -> list[str]:
    """Return the words that WordPiece looks up: without accents in most alphabets, single characters in Chinese."""
    if word.isascii():
        return [word.lower()]
    return [part for part, _ in _PRE_TOKENIZER.pre_tokenize_str(_NORMALIZER.normalize_str(word))]


def _vocabulary(utterances: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return special tokens, characters, and the most frequent words and parts of words.

    Pieces are counted, not merged pair by pair: the trainer of `tokenizers` breaks ties at random, so its vocabulary,
    and with it the whole run, would differ from run to run. WordPiece itself takes the longest piece that fits.
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


@dataclass(frozen=True)
class Readable:
    """Counts of a corpus before an encoder."""

    encoder: str
    words: int
    """Words of all utterances."""
    unknown: int
    """Words that have the piece for what is unknown."""
    distinct: int
    """Distinct utterances."""
    told_apart: int
    """Distinct utterances by their pieces: the encoder reads the others alike."""

    def line(self) -> str:
        """Return the counts in words."""
        return (
            f"encoder {self.encoder}: {self.unknown / self.words:.1%} of the words are unknown to it, and it tells "
            f"{self.told_apart:,} of {self.distinct:,} distinct utterances apart"
        )

    def check(self) -> None:
        """Raise if most words are unknown, or most distinct utterances are read alike."""
        if 2 * self.unknown > self.words or 2 * self.told_apart < self.distinct:
            raise UserError(f"model.pretrained: {self.line()}; allowed: an encoder of the corpus' language")


def readable(utterances: Sequence[Utterance], pieces: WordPieces) -> Readable:
    """Count the words that an encoder does not know, and the utterances that it tells apart; at least one is given."""
    times = Counter(word for one in utterances for word in one.tokens)
    found = dict(zip(times, map(tuple, pieces.pieces(list(times))), strict=True))
    unknown = sum(count for word, count in times.items() if not pieces.bare and pieces.unknown in found[word])
    distinct = {one.tokens for one in utterances}
    told_apart = {tuple(found[word] for word in tokens) for tokens in distinct}
    return Readable(pieces.source, times.total(), unknown, len(distinct), len(told_apart))
