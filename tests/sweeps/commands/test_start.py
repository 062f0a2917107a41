"""Printing help and refusing a recipe import no library that takes seconds to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("torch", "ray", "mlflow", "optuna", "transformers", "pandas", "scipy", "plotly", "sqlalchemy"),
    *("matplotlib", "sklearn", "gensim", "dash", "requests", "dp_accounting"),
}
_SHOW = """
import contextlib, io, json, sys
from dashboards.cli import main
for line in json.load(sys.stdin):
    sys.argv, code = ["edp-sweep", *line], None
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    print(json.dumps([code, [*{name.partition(".")[0] for name in sys.modules}]]))
"""

REFUSED = {
    "run no_such_recipe": "no such recipe",
    "run quickstart --set training.workers=0": "training.workers = 0",
    "run atis_clc --set training.micro_batches=7": "not a multiple of micro_batches = 7",
    "run atis_clc --set space.training.batch_size.choice=[64,60]": "batch_size = 60 is not a multiple",
    "run atis_bert --set search.study=postgresql://me:word@host/db": "holds a password",
    "run atis_bert --set model.heads=5": "does not divide",
    "train recipe.yaml": "no_such_field",
    "epsilon --z0 -1 --epochs 3": "z0 = -1",
    "data make weather": "corpus = 'weather'",
}


def run(lines: list[str], folder: Path) -> tuple[list[tuple[int, set[str]]], list[str]]:
    """Run command lines one after the other in one process.

    Return the exit code of each with all packages that are imported by then, and the lines on standard error.
    """
    done = subprocess.run(
        [sys.executable, "-c", _SHOW],
        input=json.dumps([line.split() for line in lines]),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    ended = map(json.loads, done.stdout.splitlines())
    return [(code, set(packages)) for code, packages in ended], done.stderr.splitlines()


@pytest.mark.slow
def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    commands = ["", "run", "resume", "status", "pick", "train", "epsilon", "attack", "data make", "ui"]
    ended, errors = run([f"{command} --help" for command in commands], tmp_path)
    assert errors == []
    for command, (code, imported) in zip(commands, ended, strict=True):
        assert code == 0, command
        assert "typer" in imported
        assert not imported & HEAVY, command


@pytest.mark.slow
def test_a_refusal_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("no_such_field: 1\n")
    ended, errors = run([*REFUSED], tmp_path)
    for (line, says), (code, imported), error in zip(REFUSED.items(), ended, errors, strict=True):
        assert code == 2, line
        assert says in error
        assert not imported & HEAVY, line
