"""Words as ids of their characters."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

MAX_CHARS = 32  # longer words are cut; the longest word of ATIS, SNIPS and NLU-eval has 30


_CHARACTERS = string.digits + string.ascii_letters + string.punctuation


ALPHABET_SIZE = len(_CHARACTERS) + 1  # and one for every other character


_UNKNOWN_CHAR = 1


_CHAR_IDS = {char: index for index, char in enumerate(_CHARACTERS, start=2)}


def char_ids(words: Sequence[str]) -> np.ndarray:
    """Characters of each word, (W, MAX_CHARS) uint8: 0 beyond it, 1 for one that is not printable ASCII."""
    ids_wc = np.zeros((len(words), MAX_CHARS), np.uint8)
    for row, word in enumerate(words):
        ids = [_CHAR_IDS.get(char, _UNKNOWN_CHAR) for char in word[:MAX_CHARS]]
        ids_wc[row, : len(ids)] = ids
    return ids_wc
