"""A sweep whose unit are users: what it guarantees them stands wherever an ε does, from the run to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from tests.conftest import TINY_RECIPE, Command
from trainables.corpora import generate

pytestmark = pytest.mark.usefixtures("kept_groups")

OF_USERS = ["training.method=dpsgd", "training.batch_size=6", "edp.unit=user", "edp.user_utterances=3"]
"""Of twelve users, nine or ten utterances each, of which four or five are in train."""


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    rows = enumerate(generate("communication", 120, seed=0))
    said = [one._asdict() | {"user": f"zebra-{n % 12}"} for n, one in rows]
    (folder / "said.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    corpus = f"corpus: {{name: said, path: {folder / 'said.jsonl'}}}"
    recipe = TINY_RECIPE.replace("corpus: {name: communication, utterances: 120}", corpus)
    (folder / "said.yaml").write_text(recipe.replace("trials: 2", "trials: 1"))
    return folder


def words(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture
def swept(long_story: None, ray_cluster: str, storage: Path, command: Command) -> dict[str, Any]:
    kept = storage / "document.json"
    if not kept.is_file():
        where = ("--name", "said", "--storage", str(storage), "--json")
        settings = words(*OF_USERS, "edp.epsilon=8", "search.keep_epochs=1")
        code, out, err = command("run", str(storage / "said.yaml"), *where, *settings)
        assert code == 0, err
        kept.write_text(out)
    return json.loads(kept.read_text())


def test_a_sweep_meets_its_target_for_users_and_says_so_everywhere(
    swept: dict[str, Any], storage: Path, command: Command, tmp_path: Path
) -> None:
    (trial,) = swept["trials"]
    assert trial["metrics"]["epsilon_user"] == trial["metrics"]["epsilon"] == pytest.approx(8, abs=1e-4)
    assert swept["epsilon_user_of_sweep"] == swept["epsilon_of_sweep"]
    assert swept["baseline"]["epsilon_user"] == float("inf")
    run = MlflowClient(swept["tracking_uri"]).get_run(trial["run_id"])
    assert run.data.metrics["epsilon_user"] == trial["metrics"]["epsilon_user"]
    assert "for one user" in run.data.tags["privacy"]
    where = ("said", "--storage", str(storage))
    for name in ("status", "front"):
        code, out, _ = command(name, *where)
        assert code == 0
        assert "ε user" in out
        assert "of a user: 8" in out
        assert "users are not known" not in out.lower()
    picked = tmp_path / "picked.yaml"
    assert command("pick", *where, "--output", str(picked))[0] == 0
    assert "ε of a user 8" in picked.read_text()
    report = tmp_path / "report.html"
    assert command("report", *where, "--output", str(report))[0] == 0
    page = report.read_text()
    assert "One user." in page
    assert "3 utterances per epoch" in " ".join(page.split())
    assert "the same: users are the unit" in page
    assert "zebra" not in page


def test_one_training_whose_unit_is_the_example_says_what_a_user_is_guaranteed(
    swept: dict[str, Any], storage: Path, command: Command, tmp_path: Path
) -> None:
    picked = tmp_path / "picked.yaml"
    assert command("pick", "said", "--storage", str(storage), "--output", str(picked))[0] == 0
    settings = words("edp.unit=example", "edp.user_utterances=null")
    code, out, err = command("train", str(picked), "--storage", str(storage), "--json", *settings)
    assert code == 0, err
    trained = json.loads(out)
    most = trained["ledger"]["most_of_a_user"]
    assert most > 1
    assert trained["metrics"]["epsilon_user"] > most * trained["metrics"]["epsilon"]
    code, out, err = command("train", str(picked), "--storage", str(storage), "--json")
    assert code == 0, err
    trained = json.loads(out)
    assert trained["metrics"]["epsilon_user"] == trained["metrics"]["epsilon"]
    assert trained["ledger"]["entries"][0]["mechanism"]["unit"] == "user"


def test_verify_takes_a_whole_user_away(swept: dict[str, Any], storage: Path, command: Command, tmp_path: Path) -> None:
    picked = tmp_path / "picked.yaml"
    assert command("pick", "said", "--storage", str(storage), "--output", str(picked))[0] == 0
    code, out, err = command("verify", str(picked), "--json", *words("edp.C=0.5"))
    assert code == 0, err
    found = json.loads(out)
    assert found["violations"] == []
    assert found["sensitivity"]["declared"] == pytest.approx(0.5 / 6)
    assert found["sensitivity"]["measured"] == pytest.approx(0.5 / 6, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["corpus={name: communication, utterances: 120}", *OF_USERS],
            "edp.unit = user: corpus communication does not",
        ),
        (["edp.unit=user"], "edp.unit = user clips each user alone"),
        (["edp.user_utterances=3"], "user_utterances = 3 has no meaning with unit = example"),
        ([*OF_USERS, "edp.user_utterances=0"], "edp.user_utterances = 0"),
        ([*OF_USERS, "edp.delta=0.2"], "edp.delta = 0.2: the corpus has 12 users to train on"),
        ([*OF_USERS, "edp.sampling=poisson", "training.batch_size=full"], "leaves edp.sampling = poisson nothing"),
    ],
)
def test_what_does_not_fit_is_one_line_before_anything_is_made(
    settings: list[str], said: str, storage: Path, command: Command, tmp_path: Path
) -> None:
    where = ("--name", "wrong", "--storage", str(tmp_path / "runs"))
    code, _, err = command("run", str(storage / "said.yaml"), *where, *words(*settings))
    assert code == 2
    assert said in err
    assert len([line for line in err.splitlines() if line.strip() and "reading" not in line]) == 1
    assert not (tmp_path / "runs" / "wrong").exists()


def test_what_users_are_guaranteed_is_known_before_a_run(command: Command) -> None:
    code, out, _ = command("epsilon", "--z0", "1", "--epochs", "30", "--unit", "user", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["epsilon_user"] == found["epsilon"] == pytest.approx(32.242817, abs=5e-7)
    code, out, _ = command("epsilon", "--z0", "1", "--epochs", "30")
    assert "a person with several utterances is protected less" in out
