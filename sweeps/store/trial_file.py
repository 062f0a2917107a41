"""`trial.json` in a trial's folder: those parts of the study's trial that no other file there holds.

The driver writes it when it asks for the trial, and again when the trial ends, before it tells the study.
`edp-sweep repair` rebuilds the study from it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import ConfigDict

from edp.spec import Frozen
from trainables.records.epochs import LEDGER
from trainables.records.files import BrokenFile, atomic_write, digest, read_json_if_any

FILE, FEATURES = "trial.json", "features"
_ELSEWHERE = ("ledger", "epochs")
"""Attributes that `ledger.json` and `curve.json` hold already."""
MODEL = "model.pt"
_OF_MODEL = (MODEL, LEDGER, "attack_features.npz")
_RELEASED = (*_OF_MODEL, "config.yaml", "curve.json")
_RELEASED_ATTRIBUTES = ("params", "metrics", "points", "digests", "tags")


class TrialFile(Frozen):
    """A trial's sampled configuration, and the outcome that the study records."""

    model_config = ConfigDict(ser_json_inf_nan="constants", allow_inf_nan=True)

    number: int
    state: Literal["RUNNING", "COMPLETE", "PRUNED", "FAIL"]
    values: tuple[float, ...] | None
    params: dict[str, Any]
    distributions: dict[str, str]
    attributes: dict[str, Any]


def keep_trial(
    trial: optuna.Trial | FrozenTrial, folder: Path, state: TrialState, values: Sequence[float] | None = None
) -> None:
    """Write a trial to its folder, in one step."""
    kept = TrialFile(
        number=trial.number,
        state=state.name,
        values=tuple(values) if values is not None else None,
        params=trial.params,
        distributions={name: distribution_to_json(one) for name, one in trial.distributions.items()},
        attributes={name: value for name, value in trial.user_attrs.items() if name not in _ELSEWHERE},
    )
    with atomic_write(folder / FILE) as partial:
        partial.write_text(kept.model_dump_json(indent=1))


def keep_released(trial: FrozenTrial, folder: Path, to: Path) -> None:
    """Move a complete trial to the folder `to` and call it 0: its files and attributes that reveal nothing of others.

    A call that was cut off can be repeated.
    """
    to.mkdir(exist_ok=True)
    for name in _RELEASED:
        if (folder / name).exists():
            (folder / name).replace(to / name)
    kept = create_trial(
        state=trial.state,
        values=trial.values,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={name: trial.user_attrs[name] for name in _RELEASED_ATTRIBUTES if name in trial.user_attrs},
    )
    kept.number = 0
    keep_trial(kept, to, trial.state, trial.values)


def read_trial(folder: Path) -> FrozenTrial | None:
    """Return the trial that `keep_trial` wrote last; None if there is no file.

    Raises:
        BrokenFile: for a file that is incomplete.
    """
    path = folder / FILE
    if (kept := read_json_if_any(path, TrialFile)) is None:
        return None
    try:
        trial = create_trial(
            state=TrialState[kept.state],
            values=list(kept.values) if kept.values is not None else None,
            params=kept.params,
            distributions={name: json_to_distribution(text) for name, text in kept.distributions.items()},
            user_attrs=kept.attributes,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # Optuna's, of parts that do not fit together
        raise BrokenFile(f"{path} is broken ({error}); allowed: the file that was written there") from None
    trial.number = kept.number
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
