"""What takes long says how far it has come, also where nobody sees a bar; what cannot end is refused."""

from __future__ import annotations

import io
import itertools
import threading

import pytest
from rich.console import Console

from sweeps.engine.progress import shown
from sweeps.engine.watch import notice
from tests.conftest import Command


def test_a_log_is_told_how_far_it_has_come_and_ever_more_rarely() -> None:
    text = io.StringIO()
    assert list(shown(range(100), "pricing epochs", 100, Console(file=text, width=200), patience_s=0.0)) == [
        *range(100)
    ]
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("pricing epochs: 1 of 100, about ")
    assert 1 < len(lines) < 100
    quiet = io.StringIO()
    assert len(list(shown(range(100), "pricing epochs", 100, Console(file=quiet)))) == 100
    assert quiet.getvalue() == "", "what is short needs no word"


def test_what_nobody_can_measure_is_spoken_of_until_it_ends() -> None:
    said, twice = list[str](), threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            twice.set()

    with notice("reading the corpora", say, patience_s=0.01):
        assert twice.wait(60)
    assert said[0].startswith("reading the corpora: for 0 s so far")
    n = len(said)
    assert not [thread for thread in threading.enumerate() if thread.name == "notice"]
    assert len(said) == n


_POISSON = ("epsilon", "--z0", "1", "--sampling", "poisson")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("epsilon", "--z0", "1", "--epochs", str(10**12)),
        (*_POISSON, "--epochs", "20000", "--decay", "linear", "--tau", "1e-3", "--rate", "0.01"),
        ("epsilon", "--z0", "1", "--epochs", "3", "--noise-correlation", "banded", "--band", str(10**12)),
        (*_POISSON, "--epochs", "3", "--rate", "1e-200"),
        *(
            ("run", "quickstart", "--set", f"{setting}={10**12}")
            for setting in ("training.epochs", "shadow.epochs", "canaries.count", "corpus.utterances", "search.trials")
        ),
        ("run", "quickstart", "--set", "resources.scales_to={nodes: 1000000000000, cpus: 1, gpus: 0}"),
        ("run", "quickstart_paper", "--set", f"model.embeddings.epochs={10**12}"),
        ("data", "make", "video", "--utterances", str(10**12)),
        ("bench", "step", "--utterances", str(10**12)),
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_what_could_not_end_is_refused(words: tuple[str, ...], command: Command, tmp_path: object) -> None:
    storage = ("--storage", str(tmp_path)) if words[0] == "run" else ()
    code, out, err = command(*words, *storage)
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_only_the_rows_that_are_shown_are_priced(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from edp.accounting import epsilon as accounting

    priced, price = itertools.count(), accounting.epsilon_of

    def counted(*args: object) -> float:
        next(priced)
        return price(*args)

    monkeypatch.setattr(accounting, "epsilon_of", counted)
    assert "ε = 820.6" in command(*_POISSON, "--epochs", "5000", "--rate", "0.01")[1]
    assert next(priced) < 20
