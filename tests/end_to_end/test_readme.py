"""Every command of the README and of the pages in `docs/` is accepted as it stands there, and run: here on a sweep that
is there already where it only reads, else by the test that is named below."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from typer.main import get_command

from dashboards.cli import app
from sweeps.recipes.loading import load_recipe
from tests.conftest import Command
from tests.support.ports import free_port
from tests.support.synthetic import sweep_of

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

RUN_BY = {
    "edp-sweep run": "tests/end_to_end/test_sweep.py::test_a_sweep_tracks_every_trial_once_under_one_parent",
    "edp-sweep list": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep status": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep front": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep report": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep epsilon": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep plan": "tests/sweeps/commands/test_plan.py",
    "edp-sweep verify": "tests/sweeps/commands/test_verify.py",
    "edp-sweep data make": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep data check": "tests/end_to_end/test_readme.py::test_what_only_reads_runs_as_it_stands_there",
    "edp-sweep data fetch": "tests/trainables/corpora/test_converted.py",
    "edp-sweep repair": "tests/sweeps/state/test_truth.py",
    "edp-sweep resume": "tests/end_to_end/test_faults.py",
    "edp-sweep confirm": "tests/end_to_end/test_sweep.py::test_the_front_is_trained_again_with_new_seeds_once",
    "edp-sweep pick": "tests/end_to_end/test_sweep.py::test_front_pick_and_train_go_on_from_there",
    "edp-sweep train": "tests/end_to_end/test_sweep.py::test_front_pick_and_train_go_on_from_there",
    "edp-sweep pretrain": "tests/sweeps/commands/test_pretrain.py",
    "edp-sweep attack": "tests/end_to_end/test_attack.py",
    "edp-sweep cluster": "tests/sweeps/cluster/test_cluster_init.py",
    "edp-sweep ui": "tests/dashboards/test_page.py",
    "edp-sweep bench": "tests/benchmarks",
    "mlflow models serve": "tests/end_to_end/test_sweep.py::test_a_registered_model_is_served",
    "curl http://127.0.0.1:5001/invocations": "tests/end_to_end/test_sweep.py::test_a_registered_model_is_served",
    "export MLFLOW_TRACKING_URI=": "tests/end_to_end/test_sweep.py::test_a_registered_model_is_served",
    "mlflow ui": "tests/end_to_end/test_readme.py::test_the_mlflow_ui_opens_as_it_stands_there",
}
"""Who runs a command, by what it begins with."""

NOT_HERE = {
    "make sweep": "is `edp-sweep run quickstart` after setting up an environment, and takes minutes",
    "make test": "is what runs this",
    "make quick": "is a part of it",
    "make setup": "is what `make test` begins with",
    "make docs": "is `mkdocs build --strict`, which `make test` runs before this",
    "make format": "writes what `make test` checks",
    "make lock": "asks a package index",
    ".venv/bin/python -m pytest": "is what runs this, on some of the tests",
    "optuna-dashboard": "is not installed here; tests/sweeps/search/test_study.py opens such a study with Optuna",
    "pip install boto3": "for the cluster launcher alone",
    "cd edp-cluster": "a folder of: edp-sweep cluster init",
    "ray get-auth-token": "needs a cluster: its file is held against Ray's schema in tests/sweeps/",
    "export RAY_AUTH_MODE": "needs a cluster",
    "ray up": "needs a cluster",
    "ray dashboard": "needs a cluster",
    "ray attach": "needs a cluster",
    "ray exec": "needs a cluster",
    "ray job submit": "needs a cluster",
    "ray down": "needs a cluster",
}

READS = (
    "edp-sweep list",
    "edp-sweep status",
    "edp-sweep front",
    "edp-sweep report",
    "edp-sweep epsilon",
    "edp-sweep data make",
    "edp-sweep data check",
)


def commands() -> list[str]:
    """Each command of the pages' shell blocks once, without its comment, continued lines joined."""
    found = []
    text = "\n".join(page.read_text() for page in PAGES)
    for block in re.findall(r"^```bash\n(.*?)^```", text, flags=re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            bare = re.sub(r"\s+# .*$", "", line).strip()
            if bare and not bare.startswith("#"):
                found.append(" ".join(bare.split()))
    return list(dict.fromkeys(found))


def own_commands() -> list[str]:
    """Those of `edp-sweep`, also where Ray runs them on the cluster."""
    inner = [re.search(r"edp-sweep [^\"]*", line) for line in commands()]
    return [match[0] for match in inner if match is not None]


@pytest.mark.parametrize("line", own_commands())
def test_every_command_of_ours_is_accepted(line: str) -> None:
    words = shlex.split(line)[1:]
    group = get_command(app)
    context = group.make_context("edp-sweep", list(words))
    while hasattr(group, "resolve_command"):
        name, group, words = group.resolve_command(context, words)
        context = group.make_context(name, list(words), parent=context)
    for override in context.params.get("settings") or []:
        assert "=" in override
    if context.info_name == "run":
        overrides = list(context.params["settings"] or [])
        load_recipe(context.params["recipe"], overrides)


@pytest.mark.parametrize("line", commands())
def test_every_command_is_run_by_a_test_or_needs_what_no_test_has(line: str) -> None:
    known = [start for start in (*RUN_BY, *NOT_HERE) if line.startswith(start)]
    assert known, "say above which test runs it"
    for start in known:
        if start not in RUN_BY:
            continue
        place, _, name = RUN_BY[start].partition("::")
        path = ROOT / place
        assert path.exists(), place
        if name:
            tree = ast.parse(path.read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, RUN_BY[start]
        if start.startswith("edp-sweep "):
            files = [path] if path.is_file() else sorted(path.glob("test_*.py"))
            assert any(start.split()[1] in file.read_text() for file in files), RUN_BY[start]


@pytest.mark.slow
def test_what_only_reads_runs_as_it_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep_of(Path("runs"), "first", 4)
    lines = [line for line in commands() if line.startswith(READS)]
    assert {line.split()[1] for line in lines} == {"list", "status", "front", "report", "epsilon", "data"}
    for line in lines:
        code, _, err = command(*shlex.split(line)[1:])
        assert code == 0, (line, err)
    assert Path("report.html").is_file()


@pytest.mark.slow
def test_the_mlflow_ui_opens_as_it_stands_there(tmp_path: Path) -> None:
    sweep_of(tmp_path / "runs", "first", 1)
    (line,) = [line for line in commands() if line.startswith("mlflow ui")]
    port = str(free_port())
    words = [sys.executable, "-m", *shlex.split(line), "--port", port, "--workers", "1"]
    quick = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # no job queue: up in seconds
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=quick, stdout=log, stderr=log, start_new_session=True)
        try:
            answered = False
            while process.poll() is None and not answered:
                with suppress(requests.RequestException):
                    answered = requests.get(f"http://127.0.0.1:{port}", timeout=10).ok
                time.sleep(0.2)
            assert answered, (tmp_path / "log").read_text()
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def test_the_picture_comes_early_and_what_is_linked_is_there() -> None:
    text = README.read_text()
    picture = text[: text.index("![")].count("\n")
    assert picture <= 45, "at most two screens"
    for target in re.findall(r"\]\((?!https?://|#)([^)]+)\)", text):
        assert (ROOT / target).exists(), target
