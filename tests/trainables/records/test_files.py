"""Files are whole or not there; a full disk is known by whatever says so."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.tiny import spec
from trainables.records.files import BrokenFile, atomic_write, disk_full, why_not
from trainables.training.checkpoint import BEFORE, NAME, Checkpoint, load_checkpoint, save_checkpoint, spec_key


def checkpoint(step: int, size: int = 10) -> Checkpoint:
    weights = {"weight": torch.full((size,), float(step))}
    return Checkpoint(spec_key(spec()), step, [1.0] * step, "{}", None, weights, {}, None, None, None)


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with atomic_write(path) as partial:
        partial.write_text("old")

    def fail_half_way() -> None:
        with atomic_write(path) as partial:
            partial.write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_files_place_is_named_and_nothing_stays_behind(tmp_path: Path) -> None:
    path = tmp_path / "front.svg"
    path.mkdir()
    with pytest.raises(BrokenFile, match=r"front\.svg is a folder; allowed: a file"), atomic_write(path) as partial:
        partial.write_text("new")
    assert list(tmp_path.iterdir()) == [path]


def test_the_last_two_checkpoints_are_kept_and_the_older_one_serves_where_the_newer_is_broken(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(checkpoint(step), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {NAME, BEFORE}
    found = load_checkpoint(tmp_path, spec())
    assert found is not None
    assert found.step == 3
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:100])
    found = load_checkpoint(tmp_path, spec())
    assert found is not None
    assert found.step == 2
    (tmp_path / BEFORE).write_bytes(b"nothing")
    assert load_checkpoint(tmp_path, spec()) is None


WRITER = """
import sys
from pathlib import Path
from tests.trainables.records.test_files import checkpoint
from trainables.training.checkpoint import save_checkpoint
from trainables.records.files import disk_full
save_checkpoint(checkpoint(1), Path(sys.argv[1]))
try:
    save_checkpoint(checkpoint(2, size=1_000_000), Path(sys.argv[1]))
except Exception as error:
    print(disk_full(error))
"""


@pytest.mark.slow
def test_a_checkpoint_that_finds_no_room_leaves_the_one_before_and_says_why(tmp_path: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, preexec_fn=limit)
    assert done.stdout.startswith("the disk is full: "), done
    assert f"({tmp_path / NAME})" in done.stdout, "it names the file"
    found = load_checkpoint(tmp_path, spec())
    assert found is not None
    assert found.step == 1
    assert {path.name for path in tmp_path.iterdir()} <= {NAME, BEFORE}


def test_a_full_disk_is_known_also_behind_other_errors() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/runs/x")
    assert disk_full(full) == "the disk is full: No space left on device (/runs/x)"
    behind = RuntimeError("could not save")
    behind.__cause__ = full
    assert disk_full(behind) == disk_full(full)
    assert disk_full(RuntimeError("(sqlite3.OperationalError) database or disk is full")) is not None
    assert disk_full(RuntimeError("no such table")) is None
    assert disk_full(OSError(errno.EACCES, "Permission denied")) is None


def test_a_full_disk_is_known_from_what_numpy_and_pytorch_make_of_it() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        with pytest.raises(OSError, match="requested and") as short:
            np.zeros(100_000).tofile(full)
        with pytest.raises((OSError, RuntimeError)) as torchs:
            torch.save(torch.zeros(100_000), full)
    assert disk_full(short.value) == "the disk is full: 100000 requested and 0 written"
    assert (disk_full(torchs.value) or "").startswith("the disk is full: ")
    assert why_not(short.value) == disk_full(short.value)
    assert why_not(OSError("odd")) == "odd"
    assert why_not(PermissionError(errno.EACCES, "Permission denied")) == "Permission denied"
