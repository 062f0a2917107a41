"""Every command: what it imports, which paths it takes, how a signal ends it, and what `settings` prints."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from sweeps.commands.app import COMMANDS
from sweeps.commands.app import command as imported
from sweeps.config.all_settings import settings
from tests.conftest import Command
from tests.support.command_line import commands

SLOW = {"torch", "ray", "mlflow", "transformers", "dash", "matplotlib", "gensim"}
HEAVY = SLOW | {"optuna", "pandas", "scipy", "plotly", "sqlalchemy", "sklearn", "requests", "dp_accounting", "numpy"}
_SHOW = """
import contextlib, io, json, sys
from sweeps.commands.app import main
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
    "run quickstart --set training.workers=0": "training.workers = 0",
    "run atis_bert --set search.study=postgresql://me:word@host/db": "holds a password",
    "train recipe.yaml": "no_such_field",
    "epsilon --z0 -1 --epochs 3": "z0 = -1",
    "data make weather": "corpus = 'weather'",
}


def test_the_help_of_each_command_is_the_first_line_of_its_own() -> None:
    for name, (_, line) in (one for group in COMMANDS.values() for one in group.items()):
        assert imported(name).help.partition("\n")[0] == line


@pytest.mark.slow
def test_a_shell_completes_commands_options_recipes_and_sweeps(tmp_path: Path) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "sweep.json").touch()
    (tmp_path / "elsewhere" / "second").mkdir(parents=True)
    (tmp_path / "elsewhere" / "second" / "sweep.json").touch()
    wanted = {"sta": ["status"], "run quickstart_": ["quickstart_paper"], "pick f": ["first"]}
    wanted |= {"list --tr": ["--tracking-uri"], "pick --storage elsewhere s": ["second"]}
    for line, found in wanted.items():
        asked = {"_EDP_SWEEP_COMPLETE": "complete_bash", "COMP_WORDS": f"edp-sweep {line}"}
        words = [sys.executable, "-c", "import sys; sys.argv = ['edp-sweep']; import sweeps.commands.__main__"]
        done = subprocess.run(
            words,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **asked, "COMP_CWORD": str(len(line.split()))},
        )
        assert done.stdout.split() == found, (line, done.stderr)


@pytest.mark.slow
def test_help_and_refusals_import_nothing_that_takes_seconds(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("no_such_field: 1\n")
    commands = ["", "run", "resume", "status", "pick", "train", "epsilon", "attack", "data make", "ui"]
    lines = [*(f"{command} --help" for command in commands), *REFUSED]
    done = subprocess.run(
        [sys.executable, "-c", _SHOW],
        input=json.dumps([line.split() for line in lines]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    for line, ended in zip(lines, map(json.loads, done.stdout.splitlines()), strict=True):
        code, packages = ended
        assert code == (2 if line in REFUSED else 0), line
        assert "typer" in packages
        assert not (SLOW if line.strip() != "--help" else HEAVY) & set(packages), line
    for says, error in zip(REFUSED.values(), done.stderr.splitlines(), strict=True):
        assert says in error


def _paths() -> list[tuple[tuple[str, ...], str | None]]:
    """Each command with each of its options that is a path; None: its argument is."""
    found: list[tuple[tuple[str, ...], str | None]] = []
    for words, command in commands():
        for parameter in command.params:
            if parameter.metavar in ("PATH", "FILE"):
                found.append((words, parameter.opts[0] if parameter.opts[0].startswith("-") else None))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", ["x" * 300])
@pytest.mark.parametrize(("words", "option"), _paths())
def test_what_is_no_path_is_a_mistake_of_one_line(
    words: tuple[str, ...],
    option: str | None,
    path: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    needed = {"epsilon": ["--z0", "1", "--epochs", "1"], "make": ["health"], "attack": ["s/1"], "init": ["aws"]}
    one = {"list", "step", "fetch", "train", "epsilon", "make", "attack", "init"}
    more = needed.get(words[-1], [] if words[-1] in one else ["name"])
    code, out, err = command(*words, *more, *([option] if option else []), path)
    assert code == 2, err
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert "allowed: " in err
    assert not list(tmp_path.iterdir())


def test_every_path_that_a_command_takes_is_one_of_these() -> None:
    """An option added without the check would be missing from `_paths`."""
    takes = [
        hint
        for _, command in commands()
        for hint in get_type_hints(inspect.unwrap(command.callback)).values()
        if hint is Path or Path in get_args(hint)
    ]
    assert len(takes) == len(_paths())


_WAITS = """
import signal, sys
from sweeps.commands import app as cli

def wait_command():
    print("waits", flush=True)
    signal.pause()

cli.COMMANDS["Run a sweep"]["wait"] = ("__main__", "Wait.")
sys.argv = ["edp-sweep", "wait"]
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGTERM, 143, "edp-sweep: stopped by SIGTERM"), (signal.SIGINT, 130, "edp-sweep: stopped by Ctrl-C")],
)
def test_a_signal_ends_a_command_with_its_name_and_its_code(number: signal.Signals, code: int, line: str) -> None:
    words = [sys.executable, "-c", _WAITS]

    def as_in_a_terminal() -> None:  # in the background a shell lets its commands ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True, preexec_fn=as_in_a_terminal) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=400)
    assert process.returncode == code
    assert err.strip() == line


def test_all_settings_or_those_with_a_word_in_path_or_meaning_are_printed(command: Command) -> None:
    code, out, err = command("settings", "--json")
    assert code == 0, err
    assert json.loads(out) == [one._asdict() for one in settings()]
    code, out, err = command("settings", "Batch_Size")
    assert code == 0, err
    assert "training.batch_size: default 64; allowed: a whole number ≥ 1 or full\n    utterances per step of" in out
    assert "training.non_private.batch_size: default null; allowed: a whole number ≥ 1 or null\n" in out
    assert "edp.C" not in out
    assert "edp.C" in command("settings", "scaled gradient")[1]
    assert "model.layers (of clc): default 2; " in command("settings", "model.layers")[1]


def test_every_setting_says_what_it_means() -> None:
    assert {one.path for one in settings() if not one.meaning} == {"model.kind"}
