"""Every command of the README and of `docs/` is accepted as it stands there; those that only read are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from sweeps.commands.app import app
from sweeps.config.loading import load_recipe
from tests.conftest import Command
from tests.support.synthetic import sweep_of

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "tutorial.md")]
"""All pages but the tutorial, whose commands `test_tutorial.py` runs."""

READS = (
    "edp-sweep list",
    "edp-sweep status",
    "edp-sweep front",
    "edp-sweep report",
    "edp-sweep epsilon",
    "edp-sweep data make",
    "edp-sweep data check",
    "edp-sweep data schema",
)


def commands() -> list[str]:
    """Return each command of the pages' shell blocks once, without its comment, continued lines joined."""
    found = []
    text = "\n".join(page.read_text() for page in PAGES)
    for block in re.findall(r"^```bash\n(.*?)^```", text, flags=re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            bare = re.sub(r"\s+# .*$", "", line).strip()
            if bare and not bare.startswith("#"):
                found.append(" ".join(bare.split()))
    return list(dict.fromkeys(found))


def own_commands() -> list[str]:
    """Return the commands of `edp-sweep`, also those that Ray runs on the cluster."""
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
    if context.info_name == "run" and not re.match(r"mine\.(csv|jsonl)", context.params["recipe"]):
        overrides = list(context.params["settings"] or [])
        load_recipe(context.params["recipe"], overrides)


@pytest.mark.stress
def test_what_only_reads_runs_as_it_stands_there_but_for_the_size_of_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "first"):
        sweep_of(Path("runs"), name, 4)
    # A machine may lack the real corpora.
    lines = [line for line in commands() if line.startswith(READS) and "atis" not in line]
    assert {line.split()[1] for line in lines} == {"list", "status", "front", "report", "epsilon", "data"}
    for line in lines:
        code, _, err = command(*shlex.split(line.replace("--utterances 50000", "--utterances 500"))[1:])
        assert code == 0, (line, err)
    assert Path("report.html").is_file()


def test_the_picture_comes_early_and_what_is_linked_is_there() -> None:
    text = README.read_text()
    picture = text[: text.index("![")].count("\n")
    assert picture <= 45, "at most two screens"
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)[^)]*\)", text):
        assert (ROOT / target).exists(), target
