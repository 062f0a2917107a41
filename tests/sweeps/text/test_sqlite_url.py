"""The URL of a SQLite file names that file, to SQLAlchemy and to MLflow, whatever stands in its path."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from sweeps.store.storage import default_tracking_uri
from sweeps.text.paths import sqlite_url
from sweeps.tracking.tracker import Tracker


@pytest.mark.parametrize("name", ["año übung", "ein#zwei", "what?", "half %41", "$HOME", "a@b:c", "a&b=c+d"])
def test_it_is_read_back_as_the_path(name: str, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / name / "mlflow.db")
    assert make_url(url).database == str(tmp_path / name / "mlflow.db")
    assert not set("?#$") & set(url)
    assert ("%25" in url) == (name == "half %41")


@pytest.mark.parametrize("name", ["josé müller", "half %41", "ein#what?"])
def test_mlflow_makes_no_folder_of_another_name(name: str, tmp_path: Path) -> None:
    """It makes the database's own from the URL as it stands, and who may write nowhere else could not begin."""
    home = tmp_path / name
    (home / "runs").mkdir(parents=True)
    Tracker(default_tracking_uri(home / "runs"), "train", home / "runs" / "mlflow-artifacts")
    assert [place.name for place in tmp_path.iterdir()] == [home.name]
    assert (home / "runs" / "mlflow.db").is_file()
