"""Whether a sweep runs, or its driver is gone, and what is to be typed next: quoted, and complete."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.commands.run import next_steps
from sweeps.results.snapshot import Snapshot
from sweeps.store.lock import driver_lock
from sweeps.store.sweep import Sweep
from tests.conftest import Command
from tests.support import studies


@pytest.mark.slow
def test_a_driver_that_is_gone_is_told_from_one_that_runs(tmp_path: Path, command: Command) -> None:
    made, recipe = studies.sweep(tmp_path, "search.sampler=random")
    search = studies.trials(made, recipe)
    assert search.ask("a") is not None
    where = ("--storage", str(tmp_path))
    with driver_lock(made.folder, made.name):
        assert command("list", *where)[1].startswith("one  running  1 trials  20")
        assert json.loads(command("list", "--json", *where)[1])[0]["state"] == "running"
        shown = command("status", "one", *where)[1]
        assert shown.startswith("sweep one: running; 1 running of 8\n")
        assert "gone" not in shown
    assert command("list", *where)[1].startswith("one  interrupted  1 trials  20")
    document = json.loads(command("status", "one", "--json", *where)[1])
    assert (document["state"], document["trials"][0]["state"]) == ("interrupted", "interrupted")
    first, second, *_ = command("status", "one", *where)[1].splitlines()
    assert first == "sweep one: interrupted; 1 interrupted of 8"
    assert second == f"its process is gone; go on with: edp-sweep resume one --storage {tmp_path}"
    code, _, err = command("confirm", "one", *where)
    assert code == 2
    assert f"its process is gone; go on with: edp-sweep resume one --storage {tmp_path}" in err
    made.update(state="stopped")
    assert made.state == "stopped"
    assert [trial.state for trial in made.trials()] == ["interrupted"], "nobody drives it, so no trial of it runs"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["plain", "a b", "it's; $(here) `now` *"])
@pytest.mark.parametrize("hidden", [False, True])
def test_what_to_type_next_finds_the_sweep_again(
    folder: str, hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    storage = tmp_path / folder
    made, recipe = studies.sweep(storage)
    uri = "postgresql://me:***@host/my db" if hidden else "sqlite:////some where/mlflow.db"
    made.update(tracking_uri=uri)
    search = studies.trials(made, recipe)
    assert search.ask("a") is not None
    search.tell("a", studies.result(), Ledger(), [])
    lines = [line.strip() for line in next_steps(Snapshot(made)).splitlines() if "edp-sweep" in line]
    assert len(lines) == 6
    for line in lines:
        words = shlex.split(line)
        assert words[words.index("--storage") + 1] == str(storage)
        # A store is named where the command would not find it: its password is not kept, or `train` knows no sweep.
        told = words[1] == "train" or (hidden and words[1] != "status")
        assert ("--tracking-uri" in words) is told
        assert not told or words[words.index("--tracking-uri") + 1] == uri
    moved = shlex.split(made.command("resume", tracking_uri="sqlite:////new place.db"))
    assert moved[-2:] == ["--tracking-uri", "sqlite:////new place.db"]
    with pytest.raises(UserError) as taken:
        Sweep.new(storage, "one")
    assert shlex.split(str(taken.value).partition("go on with: ")[2])[-1] == str(storage)
