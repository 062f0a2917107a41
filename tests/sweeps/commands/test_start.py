"""What nobody waits for: libraries that take seconds to import are not there to print help or to refuse a recipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("torch", "ray", "mlflow", "optuna", "transformers", "pandas", "scipy", "plotly", "sqlalchemy"),
    *("matplotlib", "sklearn", "gensim", "dash", "requests", "dp_accounting"),
}
_SHOW = """
import sys
from dashboards.cli import main
sys.argv = ["edp-sweep", *sys.argv[1:]]
try:
    main()
finally:
    print("\\nimported:", *{name.partition(".")[0] for name in sys.modules})
"""


def run(*words: str) -> tuple[int, str, set[str]]:
    """Exit code, standard error, and the packages that were imported."""
    done = subprocess.run([sys.executable, "-c", _SHOW, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, set(done.stdout.rpartition("imported:")[2].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["", "run", "resume", "status", "pick", "train", "epsilon", "attack", "pretrain", "data make", "ui"]
)
def test_help_imports_nothing_heavy(command: str) -> None:
    code, err, imported = run(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert "typer" in imported
    assert not imported & HEAVY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run no_such_recipe", "no such recipe"),
        ("run quickstart --set training.workers=0", "training.workers = 0"),
        ("run atis_clc --set training.micro_batches=7", "not a multiple of micro_batches = 7"),
        ("run atis_clc --set space.training.batch_size.choice=[64,60]", "batch_size = 60 is not a multiple"),
        ("run atis_bert --set search.study=postgresql://me:word@host/db", "holds a password"),
        ("run atis_bert --set model.heads=5", "does not divide"),
        ("train RECIPE", "no_such_field"),
        ("pretrain public_minilm --set stages=[]", "stages"),
        ("epsilon --z0 -1 --epochs 3", "z0 = -1"),
        ("data make weather", "corpus = 'weather'"),
    ],
)
def test_a_refusal_imports_nothing_heavy(words: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("no_such_field: 1\n")
    code, err, imported = run(*(str(tmp_path / "recipe.yaml") if word == "RECIPE" else word for word in words.split()))
    assert code == 2, err
    assert says in err
    assert err.count("\n") == 1
    assert not imported & HEAVY
