"""The files of a trial's folder: digests of its models, and `trial.json`, the study's record of a released trial."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import ConfigDict

from edp.spec import Frozen
from trainables.records.epochs import LEDGER
from trainables.records.files import BrokenFile, atomic_write, digest, read_json_if_any

FILE, FEATURES = "trial.json", "features"
MODEL = "model.pt"
_OF_MODEL = (MODEL, LEDGER, "attack_features.npz")
_RELEASED = (*_OF_MODEL, "config.yaml", "curve.json")
_RELEASED_ATTRIBUTES = ("params", "metrics", "points", "digests", "tags")


class TrialFile(Frozen):
    """A released trial's sampled configuration, and the outcome that the study recorded."""

    model_config = ConfigDict(ser_json_inf_nan="constants", allow_inf_nan=True)

    values: tuple[float, ...]
    params: dict[str, Any]
    distributions: dict[str, str]
    attributes: dict[str, Any]


def keep_released(trial: FrozenTrial, folder: Path, to: Path) -> None:
    """Move a complete trial to the folder `to` and call it 0: its files and attributes that reveal nothing of others.

    A call that was cut off can be repeated.
    """
    to.mkdir(exist_ok=True)
    for name in _RELEASED:
        if (folder / name).exists():
            (folder / name).replace(to / name)
    kept = TrialFile(
        values=tuple(trial.values),
        params=trial.params,
        distributions={name: distribution_to_json(one) for name, one in trial.distributions.items()},
        attributes={name: trial.user_attrs[name] for name in _RELEASED_ATTRIBUTES if name in trial.user_attrs},
    )
    with atomic_write(to / FILE) as partial:
        partial.write_text(kept.model_dump_json(indent=1))


def read_trial(folder: Path) -> FrozenTrial | None:
    """Return the trial that `keep_released` wrote, as number 0; None if there is no file.

    Raises:
        BrokenFile: for a file that is incomplete.
    """
    path = folder / FILE
    if (kept := read_json_if_any(path, TrialFile)) is None:
        return None
    try:
        trial = create_trial(
            state=TrialState.COMPLETE,
            values=list(kept.values),
            params=kept.params,
            distributions={name: json_to_distribution(text) for name, text in kept.distributions.items()},
            user_attrs=kept.attributes,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # Optuna's, of parts that do not fit together
        raise BrokenFile(f"{path} is broken ({error}); allowed: the file that was written there") from None
    trial.number = 0
    return trial


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
