"""A mistake of the user's ends at once: one line on standard error, exit code 2, nothing half-made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY_RECIPE, Command

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list", "--storage", "RECIPE"], "it is a file; allowed: a folder"),
        (["pick", "s", "--max-mia-auc", "60"], "--max-mia-auc = 60: allowed: 0 to 1"),
        (["run", "no_such_recipe"], "recipe = 'no_such_recipe'"),
        (["run", "RECIPE", "--set", "trainin.epochs=2"], "trainin = "),
        (["run", "RECIPE", "--set", "edp.C=-1"], "edp.C = -1"),
        (["run", "RECIPE", "--set", "edp.decay=none", "--set", "edp.tau=0.5"], "tau = 0.5"),
        (["run", "RECIPE", "--set", "corpus.name=mine", "--set", "corpus.path=/not/there"], "/not/there"),
        (["run", "RECIPE", "--set", 'corpus.path="\\0x"'], "leads nowhere"),
        (["run", "RECIPE", "--set", "model.embeddings={path: nothing.vec}"], "model.embeddings.path = "),
        (["run", "RECIPE", "--set", "model.embeddings={path: other.vec}"], "other.vec has vectors of 3 dimensions"),
        (["run", "RECIPE", "--set", "model.embeddings={path: tiny.bin}"], "cannot be read as fastText vectors"),
        (["run", "nlu_eval_bert", "--set", "model.heads=5"], "model.heads = 5 does not divide"),
        (["run", "RECIPE", "--trials", "0"], "search.trials = 0"),
        (["run", "RECIPE", "--trials", "many"], "--trials"),
        (["run", "RECIPE", "--name", "a/b"], "name = 'a/b'"),
        (["run", "RECIPE", "--tracking-uri", "nonsense://x"], "tracking-uri = 'nonsense://x'"),
        (["run", "RECIPE", "--tracking-uri", "http://127.0.0.1:9"], "tracking-uri = 'http://127.0.0.1:9'"),
        (
            [
                "run",
                "RECIPE",
                "--set",
                "training.workers=54",
                "--set",
                "training.micro_batches=54",
                "--set",
                "training.batch_size=54",
            ],
            "training.workers = 54 can never run",
        ),
        (["run", "RECIPE", "--set", "training.device=cuda"], "training.device = cuda"),
        (["run", "RECIPE", "--set", "resources.gpus_per_worker=1"], "the cluster has 0 GPUs"),
        (["run", "RECIPE", "--set", "search.concurrency=4"], "search.concurrency = 4"),
        (["run", "RECIPE", "--storage", "tiny.yaml"], "storage = 'tiny.yaml'"),
        (["resume", "nothing"], "no sweep of this name"),
        (["pick", "nothing"], "no sweep of this name"),
        (["train", "nothing.yaml"], "no such file"),
        (["epsilon", "--z0", "1", "--epochs", "3", "--tau", "1"], "tau = 1"),
        (["epsilon", "--z0", "-1", "--epochs", "3"], "z0 = -1"),
        (["epsilon", "--z0", "1", "--epochs", "0"], "--epochs"),
        (["epsilon", "--z0", "1", "--epochs", "3", "--rate", "2"], "rate = 2"),
        (["epsilon", "--z0", "1", "--epochs", "3", "--method", "sgd"], "method = 'sgd'"),
        (["data", "check", "/not/there"], "/not/there"),
        (["data", "make", "weather"], "corpus = 'weather'"),
        (["nonsense"], "No such command 'nonsense'; allowed: run, resume, "),
        (["bench", "nonsense"], "No such command 'nonsense'; allowed: "),
        (["front", "--nonsense"], "No such option: --nonsense; allowed: --storage, --tracking-uri, --json, --help"),
        (["confirm", "x", "--seeds", "0"], "--seeds = '0': input should be greater than or equal to 2"),
        (["epsilon", "--z0", "abc", "--epochs", "3"], "--z0 = 'abc': input should be a valid number"),
        (["pick", "x", "--alias", "y"], "--alias: 'y' is not one of 'candidate', 'champion'"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_one_line_exit_code_2_and_nothing_made(
    words: list[str],
    says: str,
    tmp_path: Path,
    ray_cluster: str,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    (tmp_path / "other.vec").write_text("1 3\nword 0.1 0.2 0.3\n")
    (tmp_path / "tiny.bin").write_bytes(b"\0" * 100)
    before = set(tmp_path.rglob("*"))
    code, out, err = command(*(str(recipe) if word == "RECIPE" else word for word in words))
    assert code == 2, err
    assert says in err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert out == ""
    made = {path for path in set(tmp_path.rglob("*")) - before if "logs" not in path.parts}
    assert {path.name for path in made} <= {"runs"}, made


def test_the_installed_command_does_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sweeps.commands", "run", "quikstart"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean quickstart" in done.stderr
