"""What MLflow remembers for the account of a corpus: trainings whose folders are gone, and registered models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlflow.entities import Run, ViewType
from mlflow.tracking import MlflowClient
from pydantic import ValidationError

from edp.spec import UserError
from sweeps.results.account import DELTA, CorpusAccount, accounts
from sweeps.store.activities import Activity
from sweeps.store.records import SweepRecord
from sweeps.store.same_corpus import KnownCorpus
from sweeps.store.storage import absolute_store, sqlite_file
from sweeps.store.sweep import all_sweeps
from sweeps.text.secrets import redacted
from sweeps.tracking.store import check_store, check_there, refusal, settled_uri
from trainables.config import CorpusSpec

GONE = "ledger gone: not counted"

_PAGE = 1000


def tracked_accounts(
    storage: Path, uri: str, *, wanted: KnownCorpus | None = None, going_on: str | None = None
) -> list[CorpusAccount]:
    """Return `accounts` with what MLflow remembers: the store at `uri`, and the stores of the folder's sweeps.

    A store that does not answer is one more thing that may be uncounted.
    """
    records: list[SweepRecord] = []
    for sweep in all_sweeps(storage):
        with suppress(UserError):  # `accounts` reports a sweep that cannot be read
            records.append(sweep.record)
    run_ids = {record.run_id for record in records}
    own = {record.tracking_uri for record in records} - {"", redacted(uri), redacted(absolute_store(uri))}
    file = sqlite_file(absolute_store(uri))
    # Before anything is tracked, the default store is not there, and a query would create it.
    stores = sorted(own) if file is not None and not file.exists() else [uri, *sorted(own)]
    remembered: list[Activity] = []
    registered: set[str] = set()
    silent: list[str] = []
    for store in stores:
        try:
            store = settled_uri(None, store)
            check_there(store)
            client = MlflowClient(tracking_uri=check_store(store), registry_uri=store)
            runs = {run.info.run_id: run for run in _runs(client)}
            models = {model.run_id for model in _pages(client.search_model_versions)}
        except UserError as error:
            silent.append(str(error))
            continue
        except Exception as error:  # MLflow, its plugins and database drivers have no common error
            silent.append(str(refusal(store, error)))
            continue
        remembered += _without_folder(runs, storage, run_ids)
        registered |= models | {_name(runs[run]) for run in models & runs.keys() if _role(runs[run]) == "train"}
    found = accounts(storage, remembered=remembered, registered=frozenset(registered), going_on=going_on, wanted=wanted)
    for account in found:
        account.uncounted += [f"what only this store knows: {what}" for what in silent]
    return found


def _without_folder(runs: Mapping[str, Run], storage: Path, known: set[str]) -> Iterator[Activity]:
    """Yield the trainings whose folders are not in `storage`.

    Args:
        known: the runs of the sweeps in `storage`.
    """
    trainings: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs.values():
        role = _role(run)
        if role == "sweep" and run.info.run_id not in known:
            trainings[run.info.run_id] += []
        elif role == "train" and not (storage / _name(run) / "config.yaml").is_file():
            trainings[run.info.run_id].append(run)
        elif role in ("trial", "confirm") and run.data.tags.get("state") != "refused":
            root = _root(run, runs)
            if root not in known:
                trainings[root].append(run)
    for root, children in trainings.items():
        about = runs.get(root) or children[0]
        yield _activity(about, len(children))


def _activity(run: Run, trainings: int) -> Activity:
    places = ((key.split("."), value) for key, value in run.data.params.items())
    settings = {place[1]: value for place, value in places if place[0] == "corpus" and len(place) == 2}
    try:
        spec = CorpusSpec.model_validate(settings)
    except ValidationError:  # the sweep's own run is gone, and its children have the corpus' name only
        spec = CorpusSpec(name=run.data.tags.get("corpus", "unknown"))
    return Activity(
        kind="training" if _role(run) == "train" else "sweep",
        name=_name(run),
        began=run.info.start_time / 1000,
        corpus=KnownCorpus(spec),
        public={},
        delta=float(run.data.params.get("edp.delta", DELTA)),
        ledgers=(),
        trainings=trainings,
        lost=GONE,
    )


def _root(run: Run, runs: Mapping[str, Run]) -> str:
    """Return the run of the sweep that a trial or a confirmation belongs to; it may be gone."""
    while (parent := run.data.tags.get("mlflow.parentRunId")) is not None:
        if parent not in runs:
            return parent
        run = runs[parent]
    return str(run.info.run_id)


def _role(run: Run) -> str | None:
    found: str | None = run.data.tags.get("role")
    return found


def _name(run: Run) -> str:
    return str(run.data.tags.get("sweep") or run.info.run_name)


def _runs(client: MlflowClient) -> Iterator[Run]:
    experiments = [one.experiment_id for one in _pages(client.search_experiments, view_type=ViewType.ALL)]
    if experiments:
        yield from _pages(
            client.search_runs,
            experiment_ids=experiments,
            filter_string="tags.role LIKE '%'",  # of our runs alone, in a store that others use too
            run_view_type=ViewType.ALL,
        )


def _pages(search: Callable[..., Any], **about: Any) -> Iterator[Any]:
    """Yield everything that a search of MLflow finds, page by page."""
    token = None
    while True:
        page = search(**about, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
