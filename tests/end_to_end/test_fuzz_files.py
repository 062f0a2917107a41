"""Whatever became of a file, commands print lines and end, and what the other files prove happened is not denied.

`EDP_FUZZ=5000 pytest tests/end_to_end/test_fuzz_files.py` breaks so many files.
"""

from __future__ import annotations

import functools
import io
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.store.prepared import locate
from tests.support.fuzzing import EXAMPLES, Ended, fenced, run_line, tally, tried
from tests.support.synthetic import sweep_of
from trainables.measure.attacks.roc import measure
from trainables.measure.attacks.shadow import fit_attack
from trainables.records.files import save_tensors, write_json

__all__ = ["fenced", "tally"]

OTHERS = ["null", "[]", "{}", "7", '"x"', "true", "[" * 5000, '{"a": ' * 5000, "9" * 5000, "1e999", "\0", "\ufeff{}"]
VALUES = [None, True, -1, 0, 7, 2**70, 10**400, 0.5, -1e308, float("nan"), float("inf"), "", "x", "x" * 300, "\0"]
VALUES += [[], {}, [1], {"a": 1}, "../../x", "0", "complete", [[]]]
ARRAYS: list[Any] = [np.zeros((3, 0)), np.zeros(()), np.array(["x"]), np.array([{}], dtype=object)]
ARRAYS += [np.full((4, 9), np.nan)]

READS = [
    ["status", "base"],
    ["status", "base", "--json"],
    ["front", "base"],
    ["front", "base", "--json"],
    ["report", "base", "--output", "report.html"],
    ["pick", "base", "--output", "picked.yaml"],
    ["pick", "base", "--register", "x"],
    ["attack", "base/0"],
    ["confirm", "base", "--seeds", "2"],
    ["resume", "base"],
    ["ui", "base", "--no-browser"],
]


def _cut(whole: bytes, draw: st.DrawFn) -> bytes:
    return whole[: draw(st.integers(0, len(whole)))]


def _empty(whole: bytes, draw: st.DrawFn) -> bytes:
    return b""


def _foreign(whole: bytes, draw: st.DrawFn) -> bytes:
    return draw(st.one_of(st.sampled_from(OTHERS).map(lambda text: text.encode()), st.binary(max_size=200)))


def _spoilt(whole: bytes, draw: st.DrawFn) -> bytes:
    found = bytearray(whole or b"x")
    for _ in range(draw(st.integers(1, 8))):
        found[draw(st.integers(0, len(found) - 1))] = draw(st.integers(0, 255))
    return bytes(found)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, inner in items for place in _places(inner, (*at, key)))]


def _of_another_kind(whole: bytes, draw: st.DrawFn) -> bytes:
    """One value of a JSON or YAML document is another one, or gone."""
    try:
        document = json.loads(whole)
        write: Callable[[Any], str] = json.dumps
    except ValueError:
        try:
            document, write = yaml.safe_load(whole), functools.partial(yaml.safe_dump, allow_unicode=True)
        except (yaml.YAMLError, UnicodeDecodeError):
            return _spoilt(whole, draw)
    *way, last = draw(st.sampled_from(_places(document)[1:] or [("a",)]))
    inner = document
    for key in way:
        inner = inner[key]
    if not isinstance(inner, dict | list):
        return b"7"
    if draw(st.booleans()):
        inner[last] = draw(st.sampled_from(VALUES))
    else:
        with suppress(KeyError):
            del inner[last]
    try:
        return write(document).encode(errors="replace")
    except ValueError:  # an integer of more digits than Python writes
        return b"9" * 5000


def _rows(whole: bytes, draw: st.DrawFn) -> bytes:
    """One cell of a SQLite file is another one, or a table or rows are gone."""
    if not whole.startswith(b"SQLite"):
        return _of_another_kind(whole, draw)
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(whole)
        tables = [
            name for (name,) in database.execute("select name from sqlite_master where type = 'table' order by 1")
        ]
        table = draw(st.sampled_from(tables))
        columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
        rows = [row for (row,) in database.execute(f"select rowid from {table}")]
        with suppress(sqlite3.Error):
            how = draw(st.integers(0, 5))
            if how == 0:
                database.execute(f"drop table {table}")
            elif rows:
                row = draw(st.sampled_from(rows))
                if how == 1:
                    database.execute(f"delete from {table} where rowid = {row}")
                else:
                    value = draw(st.sampled_from([v for v in VALUES if not isinstance(v, list | dict | int)] + OTHERS))
                    column = draw(st.sampled_from(columns))
                    database.execute(f'update {table} set "{column}" = ? where rowid = {row}', (value,))
        database.commit()
        return bytes(database.serialize())


def _arrays(whole: bytes, draw: st.DrawFn) -> bytes:
    if not whole.startswith(b"PK") or b".npy" not in whole:
        return _spoilt(whole, draw)
    with np.load(io.BytesIO(whole), allow_pickle=False) as found:
        arrays = dict(found)
    name = draw(st.sampled_from(sorted(arrays)))
    if draw(st.booleans()):
        arrays[name] = draw(st.sampled_from(ARRAYS))
    else:
        del arrays[name]
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


FAULTS = [_cut, _empty, _foreign, _spoilt, _of_another_kind, _of_another_kind, _rows, _arrays]


@pytest.fixture(scope="module")
def whole(fenced: Path) -> Path:
    """A finished sweep with all files that commands read, `base`, and another one."""
    storage, place = fenced / "runs", fenced.parent / "whole"  # made where its copies stand: paths in it are absolute
    base = sweep_of(storage, "base", 2)
    sweep_of(storage, "other", 1, tracked=False)
    rng = np.random.default_rng(0)
    seen = {"members": rng.normal(size=(30, 4)), "non_members": rng.normal(size=(30, 4))}
    prepared = locate(base.recipe.baseline(), base.cache)
    prepared.attack.parent.mkdir(parents=True, exist_ok=True)
    write_json(prepared.attack, fit_attack(**seen))
    found = measure("shadow", seen["members"][:, 0], seen["non_members"][:, 0])
    attacks: dict[str, Any] = {"references": 2, "reference_training": "sgd", "reference_epochs": 1}
    attacks |= {"attacks": [found.document()], "curves": {"shadow": {"fpr": list(found.fpr), "tpr": list(found.tpr)}}}
    for trial in base.trials():
        for point in trial.points:
            save_tensors({"trained_on": "train"}, point.folder / "model.pt")
            np.savez(point.folder / "attack_features.npz", **seen)
            if trial.number == 0:
                (point.folder / "attacks.json").write_text(json.dumps(attacks))
            for seed in (1, 2):
                folder = base.folder / "confirm" / f"{trial.number}-{point.epoch}" / f"seed-{seed}"
                shutil.copytree(point.folder, folder, ignore=shutil.ignore_patterns("epochs"))
                done = {"seed": seed, "run_id": None, "metrics": point.metrics}
                (folder / "result.json").write_text(json.dumps(done))
    place.mkdir()
    (place / "epsilon.json").write_text(run_line("status", "base", "--json", "--storage", str(storage)).out)
    shutil.move(storage, place / "runs")
    return place


def _files(whole: Path) -> list[str]:
    every = (file for file in (whole / "runs").rglob("*") if file.is_file() and "mlflow-artifacts" not in file.parts)
    skipped = ("lock", ".log")
    return sorted(str(f.relative_to(whole)) for f in every if not f.name.endswith(skipped) and "other" not in f.parts)


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES or 60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_a_broken_file_of_a_sweep_is_a_line(
    whole: Path, fenced: Path, tally: Counter[str], data: st.DataObject
) -> None:
    storage = fenced / "runs"
    shutil.rmtree(storage, ignore_errors=True)
    shutil.copytree(whole / "runs", storage)
    file = fenced / data.draw(st.sampled_from(_files(whole)), label="file")
    fault = data.draw(st.sampled_from([*FAULTS, "gone", "folder", "link"]), label="fault")
    _break(file, fault, data.draw)
    words = data.draw(st.sampled_from(READS), label="words")

    with tried(tally, (file, fault, words)):
        ended = run_line(*words, "--storage", str(storage)).check()
        tally[ended.how] += 1
        _denies_nothing(ended, whole, file)


def _denies_nothing(ended: Ended, whole: Path, broken: Path) -> None:
    storage, words = ended.words[-1], ended.words
    listed = run_line("list", "--storage", storage).check()
    assert "other  " in listed.out, listed
    assert "other  broken" not in listed.out, listed
    if words[0] not in ("status", "front") or ended.code != 0:
        return
    assert "no trials yet" not in ended.out, ended
    if "--json" in words and broken.name != "recipe.yaml":  # whose δ is the user's to change
        found = json.loads(ended.out)["epsilon_of_sweep"]
        assert found is None or found >= _epsilon(whole) * 0.999, ended


@functools.cache
def _epsilon(whole: Path) -> float:
    found: float = json.loads((whole / "epsilon.json").read_text())["epsilon_of_sweep"]
    return found


def _break(file: Path, fault: Any, draw: Any) -> None:
    if callable(fault):
        file.write_bytes(fault(file.read_bytes(), draw))
        return
    file.unlink()
    if fault == "folder":
        file.mkdir()
    elif fault == "link":
        file.symlink_to(file.name)


@pytest.mark.slow
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_whole_files_are_read(words: list[str], whole: Path, fenced: Path) -> None:
    """Else the one above would show nothing."""
    storage = fenced / "runs"
    shutil.rmtree(storage, ignore_errors=True)
    shutil.copytree(whole / "runs", storage)
    ended = run_line(*words, "--storage", str(storage)).check()
    begins = words[0] in ("attack", "ui")
    assert ended.code == (None if begins else 2 if "--register" in words else 0), ended
