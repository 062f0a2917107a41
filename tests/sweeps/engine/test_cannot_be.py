"""What cannot be, or could not end, is refused in one line before Ray starts, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.fuzzing import begin


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run quickstart --tracking-uri http://127.0.0.1:9", "tracking-uri = 'http://127.0.0.1:9' cannot be opened"),
        ("run quickstart --tracking-uri sqlite:////dev/null/x.db", "is no folder that can be written"),
        ("run quickstart --set search.study=postgresql+asyncpg://x/y", "is not installed; allowed: pip install"),
        ("run quickstart --set corpus.utterances=400", "training.batch_size = 1600: the corpus has 177 utterances"),
        ("run quickstart --name taken", "name = 'taken'"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_is_refused_before_ray_starts(
    words: str, says: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", begin)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "kept").touch()
    code, out, err = command(*words.split(), "--storage", str(tmp_path))
    said = [line for line in err.splitlines() if not line.endswith(" so far")]  # of a busy machine
    assert (code, out, len(said)) == (2, "", 1), err
    assert says in err
    assert {place.name for place in tmp_path.iterdir()} <= {"taken", "logs"}


_POISSON = ("epsilon", "--z0", "1", "--sampling", "poisson")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("epsilon", "--z0", "1", "--epochs", str(10**12)),
        (*_POISSON, "--epochs", "20000", "--decay", "linear", "--tau", "1e-3", "--rate", "0.01"),
        ("epsilon", "--z0", "1", "--epochs", "3", "--set", f"edp={{noise_correlation: banded, band: {10**12}}}"),
        (*_POISSON, "--epochs", "3", "--rate", "1e-200"),
        *(
            ("run", "quickstart", "--set", f"{setting}={10**12}")
            for setting in ("training.epochs", "corpus.utterances", "search.trials")
        ),
        ("run", "quickstart", "--set", "resources.scales_to={nodes: 1000000000000, cpus: 1, gpus: 0}"),
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_what_could_not_end_is_refused(words: tuple[str, ...], command: Command, tmp_path: object) -> None:
    storage = ("--storage", str(tmp_path)) if words[0] == "run" else ()
    code, out, err = command(*words, *storage)
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1
