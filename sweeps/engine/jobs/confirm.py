"""Trainings of the front with new seeds, to tell configurations from luck.

Weights, data order, dropout and noise are drawn anew; the split stays, so the test utterances are the same. The means
leave out the sweep's own figures: the front was chosen by those of the validation split, so they are too good on
average.
"""

from __future__ import annotations

import functools
import math
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from edp.spec import UserError
from sweeps.config.loading import write_yaml
from sweeps.config.spending import of_training
from sweeps.engine.dying import stop_requests
from sweeps.engine.finish import tell_total
from sweeps.engine.opening import Opening, Training
from sweeps.engine.progress import Progress
from sweeps.engine.session import side_by_side, worker_group
from sweeps.results.confirmed import over_seeds, seed_folder
from sweeps.results.recommendation import picked_spec
from sweeps.results.snapshot import Snapshot
from sweeps.store.lock import driver_lock
from sweeps.store.picks import RESULT, heading_of
from sweeps.store.records import ConfirmedRun, Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import labels_field, measured
from sweeps.text.signals import going_on_with
from sweeps.tracking.job_run import JobRun, corpus_inputs, open_job
from sweeps.tracking.run_tags import environment_tags, flat, trial_tags
from sweeps.tracking.tracker import Figures, Tracker, tracker_of
from trainables.config import TrialSpec
from trainables.records.files import read_json, write_json
from trainables.records.job import TrialError, TrialStopped


def confirm(
    sweep: Sweep,
    seeds: int,
    progress: Progress | None = None,
    tracking_uri: str | None = None,
    named: str | None = None,
) -> dict[str, Any]:
    """Train every point of the front, or the named point, once with each new seed, and measure it as the sweep did.

    Trainings of earlier calls are kept: a call goes on where another stopped, and more seeds add trainings.

    Args:
        seeds: number of seeds, at least 2. They are the numbers after the recipe's own seed.
        tracking_uri: the store, if it has moved since the sweep.
        named: the point to confirm; None: the front.

    Returns:
        The document that `edp-sweep confirm --json` prints.

    Raises:
        UserError: if the sweep has not ended or cannot be confirmed. Nothing was made then.
        TrialError: if nothing could be trained.
        SweepStopped: if it was stopped; it names the command that goes on.
    """
    record = sweep.record
    if record.state == "running":
        way = "" if sweep.state == "running" else f" (its process is gone; go on with: {sweep.command('resume')})"
        raise UserError(
            f"name = {sweep.name!r} has not ended, so its front may change; allowed: a sweep that has ended{way}"
        )
    found = Snapshot(sweep)
    points = found.pareto if named is None else [found.named(named)]
    if not points:
        raise UserError(f"name = {sweep.name!r} has no complete trial yet; allowed: a sweep with a front")
    words = [*([] if named is None else [named]), "--seeds", str(seeds)]
    again = sweep.command("confirm", *words, tracking_uri=tracking_uri)
    with driver_lock(sweep.folder, sweep.name), going_on_with(again), stop_requests(sweep.folder):
        return _confirmed(sweep, points, seeds, progress or Progress(), tracking_uri or record.tracking_uri)


def _confirmed(sweep: Sweep, chosen: list[Point], seeds: int, progress: Progress, uri: str) -> dict[str, Any]:
    """Train the points' missing seeds, write means and ε to MLflow, and return the document."""
    recipe = sweep.recipe
    jobs = [
        (point, _seeded(picked_spec(point), recipe.training.seed + k), seed_folder(sweep, point, k))
        for point in chosen
        for k in range(1, seeds + 1)
    ]
    missing = [job for job in jobs if not (job[2] / RESULT).is_file()]
    what = f"trial {chosen[0].name}" if len(chosen) == 1 else f"{len(chosen)} points of the front"
    progress.say(f"{what}, {seeds} seeds: {len(missing)} of {len(jobs)} trainings to do")
    tracker = tracker_of(sweep, uri, progress.say)
    try:
        failures = _train(sweep, missing, tracker, progress) if missing else []
    except BaseException:
        # The steps that were taken count in ε. An error of the store must not hide the first error.
        with suppress(UserError):
            tell_total(sweep, tracker)
        raise
    done = [
        read_json(folder / RESULT, ConfirmedRun).model_dump() | {"point": point.name}
        for point, _, folder in jobs
        if (folder / RESULT).is_file()
    ]
    if not done:
        raise TrialError(f"nothing could be trained: {failures[-1] if failures else 'no result'}")
    points = [
        _summary(point, [run for run in done if run["point"] == point.name], recipe.search.objectives)
        for point in chosen
    ]
    for point, found in zip(chosen, points, strict=True):
        _track(tracker, point, found)
    tell_total(sweep, tracker)
    return {
        "sweep": sweep.name,
        "seeds": seeds,
        "objectives": list(recipe.search.objectives),
        "points": points,
        "failures": failures,
        "epsilon_of_sweep_and_confirmation": Snapshot(sweep).epsilon,
        **labels_field(recipe.corpus),
    }


def _seeded(spec: TrialSpec, seed: int) -> TrialSpec:
    """Return the configuration with another seed."""
    training = spec.training.model_copy(update={"seed": seed % 2**32})
    return spec.model_copy(update={"training": training})


def _train(sweep: Sweep, jobs: list[tuple[Point, TrialSpec, Path]], tracker: Tracker, progress: Progress) -> list[str]:
    """Run the trainings, as many at once as the cluster holds, and return the reasons of those that failed."""
    recipe = sweep.recipe
    opened = Opening(sweep, recipe.baseline(), progress)
    costs = [of_training(spec, opened.units) for _, spec, _ in jobs]
    opened.recorder.check(costs, f"{len(jobs)} trainings of confirm", {folder: spec for _, spec, folder in jobs})
    with opened.on_ray():
        search = recipe.search.model_copy(update={"concurrency": "auto"})
        placed = opened.fit(f"confirming {sweep.name}", recipe.training, recipe.resources, search)
        opened.encode([spec for _, spec, _ in jobs])
        with (
            _between(tracker, sweep, opened) as between,
            worker_group(sweep, placed, recipe.resources, progress) as workers,
            ExitStack() as stack,
        ):
            opened.teach(workers.run)
            progress.expect(len(jobs), 0, max(spec.training.epochs for _, spec, _ in jobs))
            shown = stack.enter_context(progress)

            def train(place: int) -> str | None:
                """Run one training, and return why it failed; None if it did not."""
                point, spec, folder = jobs[place]
                called = f"{point.name}, seed {spec.training.seed}"
                shown.trial(place, "running", point.params, called=called)
                open_run = functools.partial(_open_run, tracker, sweep, point, spec, folder, between.run_id)
                part = f"confirm {called}"
                training = Training("confirm", spec, folder, open_run, part, artifacts=("ledger.json",))
                try:
                    opened.begin(training)
                except UserError as refusal:
                    shown.trial(place, "failed", reason=str(refusal))
                    return str(refusal)
                try:
                    result, tracked = opened.run(training, workers.run, functools.partial(shown.trial_epoch, place))
                except TrialStopped:
                    raise
                except TrialError as error:
                    shown.trial(place, "failed", reason=str(error))
                    return f"trial {called}: {error}"
                shown.trial(place, "complete", metrics=result.metrics)
                found = ConfirmedRun(seed=spec.training.seed, run_id=tracked.run_id, metrics=result.metrics)
                write_json(folder / RESULT, found)
                return None

            with side_by_side(workers.at_once()) as threads:
                failures = [why for why in threads.map(train, range(len(jobs))) if why is not None]
            between.end({"state": "complete"})
    return failures


def _between(tracker: Tracker, sweep: Sweep, opened: Opening) -> JobRun:
    """Open the parent run of the trainings: that of an earlier call, or a new one.

    They are not children of the sweep's own run, so that these stay its trials.
    """
    name, at = f"{sweep.name} confirm", opened.prepared
    return open_job(
        tracker,
        name,
        params={},
        tags={**environment_tags(), "role": "confirmation", "sweep": sweep.name, "state": "running"},
        parent=sweep.record.run_id,
        note=f"The front of {sweep.name}, trained again with new seeds, to tell its configurations from luck. "
        "Means and intervals are the metrics `confirmed_…` of the trials' own runs.",
        inputs=corpus_inputs(opened.spec, at.corpus, at.shadow, sweep),
        run_id=tracker.find(sweep.record.run_id, name),
    )


def _open_run(tracker: Tracker, sweep: Sweep, point: Point, spec: TrialSpec, folder: Path, above: str | None) -> JobRun:
    """Write the configuration of a training, and open its run below `above`."""
    heading = heading_of(sweep.name, point.trial, point.epoch, point.run_id)
    write_yaml(spec, folder / "config.yaml", f"{heading} Trains with: edp-sweep train config.yaml")
    shown = flat(spec.edp.model_dump(mode="json")) | flat(spec.training.model_dump(mode="json"), "training.")
    name, parent = f"{sweep.name} confirm {point.name} seed {spec.training.seed}", above or sweep.record.run_id
    return open_job(
        tracker,
        name,
        params={"trial": point.trial, **shown},
        tags=trial_tags(sweep.name, spec) | {"role": "confirm", "confirms": point.name},
        parent=parent,
        run_id=tracker.find(parent, name),
    )


def _summary(point: Point, runs: list[dict[str, Any]], objectives: tuple[str, ...]) -> dict[str, Any]:
    """Return a point's part of the document: its figures in the sweep, the means of the new runs, and the runs."""
    found: dict[str, Any] = {}
    names = [objective.removeprefix("log10_") for objective in objectives]
    for name in (f"{split}{name}" for name in names for split in ("valid_", "")):
        trainings = [run["metrics"] for run in runs if name in run["metrics"]]
        if len(trainings) > 1:
            found[name] = {"of_sweep": point.metrics.get(name, math.nan), **vars(over_seeds(trainings, name))}
    kept = [{"seed": run["seed"], "run_id": run["run_id"], **measured(run["metrics"])} for run in runs]
    return {**point.public(), "name": point.name, "confirmed": found, "runs": kept}


def _track(tracker: Tracker, point: Point, found: dict[str, Any]) -> None:
    """Write the means to the run of the point's own trial."""
    if point.run_id is None or not found["confirmed"]:
        return
    metrics = {
        f"confirmed_{name}{suffix}": values[key]
        for name, values in found["confirmed"].items()
        for key, suffix in (("mean", ""), ("lower", "_lower"), ("upper", "_upper"))
    }
    tracker.log(point.run_id, Figures(metrics, point.epoch))
    tracker.tag(point.run_id, {"confirmed_seeds": str(len(found["runs"]))})
