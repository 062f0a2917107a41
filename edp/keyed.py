"""Random numbers of an example: a function of a secret key and the example's id alone.

Sampling must not tell one example anything of another. A generator that is read example by example does: without one
example, all later ones get other numbers. Here each example's numbers are a block of ChaCha8 (Bernstein 2008) under a
key of the run, with the example's id in the place of counter and nonce. ChaCha8 is the generator of the noise too
(`edp.noise.gaussian`).

An id has 128 bits, all different: a digest of what the example holds, or its number. Ids by content give the numbers of
all other examples to a corpus without one example. Numbers as ids are as private, as long as the key is secret: the
numbers of different examples are independent, so only which example has which changes. With a public key they are not.

Shapes: n examples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]
"""Ids of examples, (n, 4)."""

_CONSTANT = np.frombuffer(b"expand 32-byte k", "<u4")
_QUARTERS = (
    *((column, column + 4, column + 8, column + 12) for column in range(4)),
    *((column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12) for column in range(4)),
)


def derived_key(key: bytes, *purpose: str | int) -> bytes:
    """Return 256 bits for one purpose. They tell nothing of the bits for another one, nor of `key`."""
    return hashlib.shake_256(key + repr(purpose).encode()).digest(32)


def numbers(examples: int) -> Ids:
    """Return the numbers of the examples as ids, (n, 4)."""
    ids = np.zeros((examples, 4), np.uint32)
    ids[:, 0] = np.arange(examples)
    return ids


def digests(contents: Iterable[bytes]) -> Ids:
    """Return a digest of each example's content and of its number among equal ones, (n, 4).

    So ids are all different, and without one of several equal examples the others have the same ids between them.

    Examples:
        >>> both, one = digests([b"yes", b"no", b"yes"]), digests([b"no", b"yes"])
        >>> bool((both[:2] == one[::-1]).all()), len(np.unique(both, axis=0))
        (True, 3)
    """
    seen: dict[bytes, int] = {}
    found = bytearray()
    for content in contents:
        digest = hashlib.blake2b(content, digest_size=16).digest()
        again = seen[digest] = seen.get(digest, -1) + 1
        if again:
            digest = hashlib.blake2b(content, digest_size=16, salt=again.to_bytes(16, "little")).digest()
        found += digest
    return np.frombuffer(bytes(found), "<u4").reshape(-1, 4)


def words(key: bytes, ids: Ids) -> NDArray[np.uint32]:
    """Return 16 words of 32 bits for each id, (n, 16): blocks of ChaCha8 with the ids as counter and nonce."""
    x = np.empty((16, len(ids)), np.uint32)
    x[:4], x[4:12], x[12:] = _CONSTANT[:, None], np.frombuffer(key, "<u4")[:, None], ids.T
    start = x.copy()
    for _ in range(4):
        for a, b, c, d in _QUARTERS:
            for i, j, k, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[i] += x[j]
                mixed = x[k] ^ x[i]
                x[k] = (mixed << np.uint32(turn)) | (mixed >> np.uint32(32 - turn))
    return np.ascontiguousarray((x + start).T)


def uniforms(key: bytes, ids: Ids) -> NDArray[np.float64]:
    """Return 8 uniform numbers in (0, 1] for each id, (n, 8), with 53 bits each."""
    return np.asarray(((words(key, ids).view("<u8") >> np.uint64(11)) + np.uint64(1)) * 2.0**-53, np.float64)
