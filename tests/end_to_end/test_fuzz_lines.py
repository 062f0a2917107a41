"""Whatever is typed, a command prints lines and ends, and what was there before is there after it.

`EDP_FUZZ=20000 pytest tests/end_to_end/test_fuzz_lines.py` tries so many command lines.
"""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.command_line import commands
from tests.support.fuzzing import EXAMPLES, fenced, run_line, tally, tried
from tests.support.synthetic import sweep_of

__all__ = ["fenced", "tally"]

URIS = ["http://127.0.0.1:9", "http://[", "http://me:SeCrEt@127.0.0.1:9/?token=SeCrEt", "sqlite:///nowhere/x.db"]
URIS += ["sqlite:////dev/null/x.db", "sqlite+pysqlcipher://:SeCrEt@/x.db", "postgresql://me:SeCrEt@127.0.0.1:1/db"]
URIS += ["mysql://me@127.0.0.1:1/db?password=SeCrEt", "mssql+pyodbc://?odbc_connect=PWD%3DSeCrEt", "oracle://x", "x://"]
NAMES = ["base", "other", "base/", "../runs/base", "base/0", "base/9", "base/-1", "base/baseline", "base/0/1", "cache"]
NAMES += ["quickstart", "quickstart.yaml", "atis_clc", "atis", "communication", "own.yaml", "empty.yaml"]
NASTY = [
    "",
    " ",
    "..",
    "/",
    "a\0b",
    "x" * 300,
    "x" * 5000,
    "x/" * 3000,
    "-",
    "--",
    "--help",
    "\u0663",
    "\udcff",
    "a\nb",
]
NASTY += ["\x1b[31m", "[red]", "null", "[" * 5000, "{a: " * 3000, "&a [*a]", "!!python/object/apply:os.getcwd []", "%s"]
NASTY += [
    "{0}",
    "${NOWHERE}",
    "~nobody/x",
    "=1",
    "a=",
    "/dev/null",
    "/dev/full",
    "/dev/null/x",
    "nowhere/x.yaml",
    "here",
]
NUMBERS = ["0", "-1", "1", "2", "0.5", "1e-300", "1e400", "1e12", "nan", "-inf", "9" * 25, "9" * 5000, "0x10", "true"]
FIELDS = ["training.epochs", "training.workers", "training.batch_size", "training.device", "training.method", "model"]
FIELDS += ["model.kind", "model.hidden_size", "model.embeddings.path", "model.pretrained", "search", "search.trials"]
FIELDS += ["search.study", "search.objectives", "search.points_to_evaluate", "space", "space.z0", "space.z0.low", "edp"]
FIELDS += ["edp.delta", "edp.epsilon", "edp.sampling", "corpus", "corpus.path", "corpus.utterances", "a.b.c"]

# Never a path from the root: these commands are run as whoever runs the tests, and write.
TEXTS = st.text(max_size=12).filter(lambda text: "/" not in text)
WORDS = st.one_of(st.sampled_from(NAMES), st.sampled_from(NASTY), st.sampled_from(NUMBERS), TEXTS)
VALUES = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(NASTY), st.sampled_from(URIS), TEXTS)
SETTINGS = st.one_of(st.builds("{}={}".format, st.sampled_from(FIELDS), VALUES), WORDS)


def _values(parameter: Any) -> st.SearchStrategy[str]:
    if choices := getattr(getattr(parameter, "type", None), "choices", None):
        return st.one_of(st.sampled_from([str(choice) for choice in choices]), WORDS)
    if "--set" in parameter.opts:
        return SETTINGS
    if "--tracking-uri" in parameter.opts:
        return st.one_of(st.sampled_from(URIS), WORDS)
    return WORDS


def _option(parameter: Any) -> st.SearchStrategy[list[str]]:
    named = st.sampled_from([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return named.map(lambda name: [name])
    return st.tuples(named, _values(parameter)).map(list)


_known = functools.cache(commands)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    words, command = draw(st.sampled_from(_known()))
    takes = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--storage" not in p.opts]
    parts = [[draw(_values(one))] for one in takes if draw(st.integers(0, 9))]
    if options:
        parts += draw(st.lists(st.sampled_from(options).flatmap(_option), max_size=4))
    if not draw(st.integers(0, 9)):
        parts.append([draw(WORDS)])
    if any("--storage" in p.opts for p in command.params):
        parts.append(["--storage", draw(WORDS) if not draw(st.integers(0, 9)) else "../runs"])
    typed = [*words, *(word for part in draw(st.permutations(parts)) for word in part)]
    return typed if draw(st.integers(0, 19)) else typed[: draw(st.integers(0, len(typed)))]


@pytest.fixture(scope="module")
def runs(fenced: Path) -> Path:
    storage = fenced.parent / "runs"
    sweep_of(storage, "base", 2)
    sweep_of(storage, "other", 1)
    return storage


def _state(runs: Path) -> dict[str, tuple[int, bytes | None]]:
    """What must not change: which sweeps there are, and the files of those that are there."""
    # A finished sweep that is gone on with tracks what MLflow has not, and draws again; picks, measurements are kept.
    again = ("lock", "front.svg", "verified.json", "picks.json")
    found = {str(place): (0, None) for place in runs.iterdir()}
    for sweep in ("base", "other"):
        files = (file for file in (runs / sweep).rglob("*") if file.is_file() and file.name not in again)
        found |= {str(file): (file.stat().st_size, file.read_bytes()) for file in files}
    return found


def _empty(here: Path) -> None:
    for place in here.iterdir():
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    (here / "empty.yaml").touch()
    (here / "own.yaml").write_text("corpus: {name: communication, utterances: 60}\n")
    (here / "here").mkdir()


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES or 120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lines())
@example(["resume", "base/", "--storage", "../runs"])
@example(["status", "base/0", "--storage", "../runs"])
@example(["resume", "other", "--tracking-uri", "sqlite:///nowhere/x.db", "--storage", "../runs"])
@example(["run", "quickstart", "--set", "model.hidden_size=1000000000000", "--storage", "../runs"])
@example(["run", "quickstart", "--name", "base", "--storage", "../runs"])
@example(["run", "quickstart", "--tracking-uri", "oracle://x", "--storage", "../runs"])
@example(["run", "quickstart", "--set", "search.study=mysql://x", "--storage", "../runs"])
@example(["train", "empty.yaml", "--storage", "../runs"])
def test_a_command_line_prints_lines_and_ends(runs: Path, fenced: Path, tally: Counter[str], words: list[str]) -> None:
    _empty(fenced)
    before = _state(runs)
    with tried(tally, words):
        ended = run_line(*words).check()
        tally[ended.how] += 1
        assert _state(runs) == before, words
