"""Whatever is written, a disk without room is one line, and leaves nothing half-made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from edp.ledger import Ledger
from sweeps.store.study import study_storage
from sweeps.text.paths import output
from sweeps.tracking.tracker import Tracker
from tests.conftest import Command
from tests.support.disks import small_disk
from tests.support.tiny import spec
from trainables.corpora import load_corpus
from trainables.features.compute_states import _join
from trainables.features.encoded_corpus import encode
from trainables.features.states import Moments
from trainables.measure.attacks.canary import toss_coins
from trainables.records.epochs import write_curve, write_model
from trainables.records.files import disk_full, save_arrays, save_tensors, write_json
from trainables.training.checkpoint import Checkpoint, save_checkpoint

MANY = 50_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Of 64 kilobytes."""
    with small_disk(tmp_path / "disk", "64k") as place:
        yield place


def states(place: Path) -> None:
    part = place.parent / "part.npy"
    np.save(part, np.zeros((MANY, 4), np.float16))
    _join([part, part], place / "whole.npy")


def report(place: Path) -> None:
    with output(place / "report.html") as file:
        file.write("x" * 4 * MANY)


def checkpoint(place: Path) -> None:
    save_checkpoint(Checkpoint("", 1, [1.0], "{}", None, {"weight": torch.zeros(MANY)}, {}, None, None, None), place)


def moments(place: Path) -> None:
    size = torch.zeros(200)
    Moments(size, size, torch.zeros(200, 200)).save(place / "moments.npz")


WRITERS: dict[str, Callable[[Path], object]] = {
    "model": lambda place: write_model(place, {"weight": torch.zeros(MANY)}, Ledger()),
    "tensors": lambda place: save_tensors({"weight": torch.zeros(MANY)}, place / "model.pt"),
    "checkpoint": checkpoint,
    "arrays": lambda place: save_arrays(place / "features.npz", a=np.zeros(MANY)),
    "NumPy alone": lambda place: np.save(place / "a.npy", np.zeros(MANY)),
    "states of a frozen encoder": states,
    "moments": moments,
    "encoded corpus": lambda place: encode(load_corpus(spec().corpus), spec().model, place / "corpus"),
    "fitted attack": lambda place: write_json(place / "attack.json", {"coef": [0.1] * MANY}),
    "coins": lambda place: toss_coins(place / "coins.json", MANY),
    "curve": lambda place: write_curve([{"valid_ser": 0.123456789}] * MANY, place),
    "file that a user names": report,
    "MLflow's store": lambda place: Tracker(f"sqlite:///{place / 'mlflow.db'}", "e", place / "artifacts"),
    "study": lambda place: study_storage(f"sqlite:///{place / 'study.db'}"),
}


@pytest.mark.parametrize("what", WRITERS)
def test_a_full_disk_is_one_line_whatever_is_written(what: str, disk: Path) -> None:
    with pytest.raises((OSError, RuntimeError, ValueError)) as raised:
        WRITERS[what](disk)
    line = disk_full(raised.value)
    assert line is not None
    assert line.startswith("the disk is full: ")
    assert "\n" not in line
    left = {path.name for path in disk.rglob("*") if path.is_file()}
    whole = {"ledger.json", "a.npy", "whole.npy", "moments.npz", "mlflow.db", "study.db"}
    assert {name for name in left if not name.endswith("-journal")} <= whole, "nothing half-made but what is made anew"


@pytest.mark.slow
def test_a_command_whose_output_finds_no_room_says_so(disk: Path, command: Command) -> None:
    code, _, err = command("data", "make", "video", "--utterances", "5000", "--output", f"{disk}/video.jsonl")
    assert code == 2
    assert err.count("\n") == 1
    assert "the disk is full: " in err
    assert list(disk.iterdir()) == []
