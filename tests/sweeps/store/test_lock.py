"""Of two that claim a name at once one gets it, and what nothing was kept in is not there afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.store.lock import claimed, is_free
from sweeps.store.sweep import Sweep

CLAIMANT = """
import sys
from pathlib import Path
from edp.spec import UserError
from sweeps.store.lock import claimed
print("ready", flush=True)
sys.stdin.readline()
try:
    with claimed(Path(sys.argv[1]), "s"):
        print("mine", flush=True)
        sys.stdin.readline()
        (Path(sys.argv[1]) / "kept").touch()
except UserError as error:
    print(error, flush=True)
"""


@pytest.mark.slow
def test_of_many_that_claim_a_name_at_once_one_gets_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CLAIMANT, str(tmp_path / "s")]
    many = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for one in many:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in many:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    said = [one.stdout.readline() for one in many if one.stdout is not None]
    assert said.count("mine\n") == 1
    assert all("name = 's' is running (process " in line for line in said if line != "mine\n")
    for one in many:
        one.communicate("\n")
    assert [file.name for file in (tmp_path / "s").iterdir() if file.name != "lock"] == ["kept"]


def test_a_claim_of_which_nothing_came_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), claimed(tmp_path / "s", "s"):
        raise KeyError
    assert is_free(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    Sweep.new(tmp_path, "s")
    with claimed(tmp_path / "s", "s"):
        (tmp_path / "s" / "kept").touch()
    with pytest.raises(UserError, match="exists; choose another --name"):
        Sweep.new(tmp_path, "s")
