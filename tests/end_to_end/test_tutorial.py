"""Every command of the tutorial, in its order in an empty folder; servers are asked and stopped.

Corpora and trials are cut, so that it takes a few minutes.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
CUT = {"8000": "600", "--trials 8": "--trials 2", "--max-ser 0.1": "--max-ser 9", "5001": "PORT"}


def blocks(kind: str) -> list[str]:
    """Return the blocks of one kind, in the order of the page, with what is `CUT`."""
    text = PAGE.read_text()
    for long, short in CUT.items():
        assert long in text
        text = text.replace(long, short)
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.S | re.M)


def answers(address: str, data: bytes | None = None) -> bytes:
    """Return what a server answers; nothing while it does not."""
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with suppress(OSError), urllib.request.urlopen(request, timeout=60) as response:
        return bytes(response.read())
    return b""


@contextmanager
def server(words: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    """Run a command that serves, until the block ends."""
    with log.open("w") as file:
        process = subprocess.Popen(words, env=env, stdout=file, stderr=file, start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # Ctrl-C is ignored where the tests run in the background of a shell
        process.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_command_of_the_tutorial_runs(own_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (recipe,) = blocks('yaml title="mine.yaml"')
    Path("mine.yaml").write_text(recipe)
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    serving: list[str] = []
    lines = [shlex.split(line) for block in blocks("bash") for line in block.splitlines()]
    for words in lines:
        match words:
            case ["export", setting]:
                env |= dict([setting.split("=", 1)])
            case ["edp-sweep", "ui", *_]:
                port = free_port()
                with server([*words, "--no-browser", "--port", str(port)], env, tmp_path / "ui.log"):
                    wait_for(functools.partial(answers, f"http://127.0.0.1:{port}/"), 120)
            case ["mlflow", *_]:
                serving = words
            case ["curl", address, *_, data]:
                port = free_port()
                with server([str(port) if word == "PORT" else word for word in serving], env, tmp_path / "serve.log"):
                    ask = functools.partial(answers, address.replace("PORT", str(port)), data.encode())
                    (answer,) = json.loads(wait_for(ask, 120))["predictions"]
                assert answer["intent"]
            case _:
                done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
                unreviewed = words == ["edp-sweep", "run", "mine.jsonl"]
                assert done.returncode == (2 if unreviewed else 0), (words, done.stdout, done.stderr)
    assert Path("report.html").is_file()
    assert serving
