"""What the pages answer to whom, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from flask.testing import FlaskClient
from werkzeug.test import Client

from dashboards.pareto.app import create
from dashboards.pareto.source import Source
from dashboards.serve import mlflow_ui, optuna_page
from edp.ledger import Ledger
from sweeps.tracking.tracker import Tracker
from tests.support import studies
from tests.support.synthetic import add_trials, sweep_of
from tests.support.waiting import wait_for

OWN = "http://localhost"
CALL = "/_dash-update-component"
JSON = {"Origin": OWN, "Content-Type": "application/json"}


@pytest.fixture
def picked(tmp_path: Path) -> Path:
    return tmp_path / "picked.yaml"


@pytest.fixture
def page(tmp_path: Path, picked: Path) -> FlaskClient:
    made, recipe = studies.sweep(tmp_path)
    search = studies.trials(made, recipe)
    assert search.ask("a") is not None
    search.tell("a", studies.result(), Ledger(), [])
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    Tracker(uri, "quickstart_paper", tmp_path / "mlflow-artifacts")
    made.update(tracking_uri=uri)
    return create(Source(made), output=picked).server.test_client()


def click() -> dict[str, Any]:
    """What the page sends when Pick is clicked on."""
    inputs = [{"id": "pick", "property": "n_clicks", "value": 1}, {"id": "selected", "property": "data", "value": "0"}]
    state = [{"id": "model-name", "property": "value", "value": ""}, {"id": "asked", "property": "data"}]
    state += [{"id": "limits", "property": "data", "value": {}}]
    outputs = [{"id": "picked", "property": "children"}, {"id": "asked", "property": "data"}]
    return {"output": "..picked.children...asked.data..", "outputs": outputs, "inputs": inputs, "state": state} | {
        "changedPropIds": ["pick.n_clicks"]
    }


@pytest.mark.slow
def test_pick_takes_the_pages_own_origin(page: FlaskClient, picked: Path) -> None:
    for origin in (None, "null", "http://evil.example", f"{OWN}:81", "https://localhost"):
        headers = {"Origin": origin} if origin else {}
        assert page.post(CALL, json=click(), headers=headers).status_code == 403, origin
        assert not picked.exists()
    answer = page.post(CALL, json=click(), headers={"Origin": OWN})
    assert answer.status_code == 200
    assert "Picked trial 0" in answer.text
    assert picked.is_file()


def test_what_goes_wrong_inside_is_one_line_and_its_traceback_is_in_the_log(
    page: FlaskClient, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def broken(self: Source) -> None:
        raise TypeError("a fault of the program")

    monkeypatch.setattr(Source, "read", broken)
    answer = page.post(CALL, json=click(), headers={"Origin": OWN})
    assert answer.status_code == 500
    assert answer.text.count("\n") == 0
    assert answer.text.startswith("unexpected TypeError: ")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_page_is_framed_by_nobody_and_runs_its_own_scripts_only(page: FlaskClient) -> None:
    for path in ("/", "/_dash-layout", "/assets/page.js", "/nowhere"):
        headers = page.get(path, buffered=True).headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["frame-ancestors"] == policy["default-src"] == policy["base-uri"] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert "unsafe-inline" not in policy["script-src"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert page.get("/", headers={"Host": "evil.example"}).status_code == 403


def test_the_page_answers_to_the_names_of_this_machine(page: FlaskClient) -> None:
    hosts = {"127.0.0.1:8050": 200, "LOCALHOST": 200, "": 403, "[::1": 403, "192.0.2.1": 403}
    assert {host: page.get("/", headers={"Host": host}).status_code for host in hosts} == hosts


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, Client]:
    source = Source(sweep_of(tmp_path_factory.mktemp("runs"), "made", 3, tracked=False), seconds=0)
    return source, Client(optuna_page(source))


@pytest.mark.slow
def test_optunas_dashboard_shows_the_study_and_what_is_added_to_it(searched: tuple[Source, Client]) -> None:
    source, client = searched
    for n in (3, 5):
        add_trials(source.sweep, n - len(source.sweep.trials()))
        study = client.get("/api/studies/0").json
        assert study["name"] == "made"
        assert study["objective_names"] == ["ser", "mia_auc", "log10_epsilon"]
        assert [trial["values"] for trial in study["trials"]] == [trial.values for trial in source.sweep.told()]
        assert {attr["key"] for attr in study["trials"][0]["user_attrs"]} >= {"valid_ser", "epsilon"}


@pytest.mark.slow
def test_optunas_dashboard_takes_no_writes_and_answers_no_other_site(searched: tuple[Source, Client]) -> None:
    source, client = searched
    before = source.sweep.told()
    assert client.delete("/api/studies/0", headers={"Origin": OWN}).status_code == 403
    assert client.post("/api/studies", json={}, headers={"Origin": OWN}).status_code == 403
    assert client.get("/api/studies", headers={"Host": "evil.example"}).status_code == 403
    answer = client.get("/dashboard/studies/0", buffered=True)
    assert answer.status_code == 200
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert [study["study_name"] for study in client.get("/api/studies").json["study_summaries"]] == ["made"]
    assert source.sweep.told() == before


def test_mlflow_ends_with_the_block_that_started_it(long_story: None, tmp_path: Path) -> None:
    with mlflow_ui(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlflow.log") as (url, child):
        assert child is not None
        wait_for(lambda: _answers(url))
    assert child.poll() is not None
    wait_for(lambda: not _answers(url))


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).ok
    except requests.RequestException:
        return False


def test_the_login_of_a_tracking_server_is_in_no_link(tmp_path: Path) -> None:
    with mlflow_ui("https://anna:s3cret@tracking.example:8443/mlflow/?token=t0ken", tmp_path / "log") as (shown, child):
        assert (shown, child) == ("https://tracking.example:8443/mlflow", None)
