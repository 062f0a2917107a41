"""A file of utterances becomes a released model with one ε, and its account is said before it is trained on again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from edp.rounding import rounded_up
from sweeps.store.sweep import Sweep
from tests.conftest import Command
from tests.support import writers
from tests.support.encoder_folders import make_encoder
from trainables.corpora import generate

pytestmark = pytest.mark.usefixtures("kept_groups")
SMALL = [
    "model.features.public=[{name: video, utterances: 60}]",
    "model.vocabulary.utterances=60",
    "shadow.corpus.utterances=60",
    "search.proxy.utterances=200",
    "training.epochs=4",
    "space.training.epochs=null",
]


@pytest.mark.slow
def test_a_file_is_released_and_its_account_is_said_before_the_next_training(
    long_story: None, ray_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    writers.jsonl(generate("health", 300, seed=5), tmp_path).rename("mine.jsonl")
    make_encoder("bert", Path("encoder"))
    small = [word for one in SMALL for word in ("--set", one)]
    words = ["run", "mine.jsonl", "--encoder", "encoder", "--epsilon", "3", "--trials", "2", "--json", *small]
    code, _, err = command(*words)
    assert code == 2
    assert not Path("runs").exists()
    words += ["--schema", "mine.schema.yaml"]

    code, out, err = command(*words)
    assert code == 0, err
    found = json.loads(out)
    assert found["sweep"] == "mine"
    assert found["epsilon"] == pytest.approx(3, rel=1e-3)
    assert found["delta"] == 1e-3
    assert "2 trials on 200 utterances of communication, a public corpus, cost no ε" in err
    assert "trained on before" not in err
    assert Sweep.existing(Path("runs"), "mine").recipe.corpus.name == "communication"

    code, again, err = command(*words)
    assert (code, json.loads(again)["run_id"]) == (0, found["run_id"]), err
    assert "trained on before" not in err, "nothing more is trained"

    code, out, err = command(*words, "--name", "second")
    assert code == 0, err
    both = gaussian_epsilon(2**0.5 * gaussian_mu(3, 1e-3), 1e-3)
    (line,) = [
        line for line in err.splitlines() if "mine was trained on before (edp-sweep account): with this run" in line
    ]
    said = float(line.rpartition(" ")[2])
    assert said == pytest.approx(both, rel=2e-3)
    assert said >= rounded_up(both * (1 - 1e-3), 4)
    code, out, err = command("account", "mine", "--delta", "1e-3", "--json")
    assert json.loads(out)["corpora"][0]["epsilon_of_everything"] == pytest.approx(said, rel=1e-3)
