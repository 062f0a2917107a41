"""Models of every kind that can be registered, and the store."""

from __future__ import annotations

import pytest

from sweeps.tracking.tracker import Tracker
from tests.support.registering import Kept


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    place = tmp_path_factory.mktemp("store")
    return Tracker(f"sqlite:///{place / 'mlflow.db'}", "tiny", place / "artifacts")


@pytest.fixture(scope="module", params=["clc", "bert", "roberta", "heads"])
def kept(request: pytest.FixtureRequest, tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp(request.param), request.param, tracker)
