"""Digests of the files of a trial's folder."""

from __future__ import annotations

import functools
from pathlib import Path

from trainables.records.epochs import LEDGER
from trainables.records.files import digest

FEATURES = "features"
MODEL = "model.pt"
_OF_MODEL = (MODEL, LEDGER, "attack_features.npz")


def digests(folder: Path, features: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a trial's last model and kept epochs, by their paths in its folder.

    Args:
        features: the folder of the encoded corpus that a model needs too. Its files get paths under `features/`.
    """
    places = (folder, *sorted((folder / "epochs").glob("*/")))
    files = (place / name for place in places for name in _OF_MODEL)
    found = {str(file.relative_to(folder)): digest(file) for file in files if file.is_file()}
    public = (file for file in sorted(features.rglob("*")) if file.is_file())
    return found | {f"{FEATURES}/{file.relative_to(features)}": _unchanged(file) for file in public}


def _unchanged(file: Path) -> str:
    """Return the digest of a file that all trials share. Read it once: word vectors may take gigabytes."""
    about = file.stat()
    return _digest_of(file, about.st_size, about.st_mtime_ns)


@functools.cache
def _digest_of(file: Path, size: int, changed: int) -> str:
    return digest(file)
