"""The end of a sweep's run, whatever ended it: front, picture and state, in the sweep's folder and in MLflow."""

from __future__ import annotations

from typing import Any

from mlflow.entities import DatasetInput

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from sweeps.engine.progress import Progress
from sweeps.results.front_figure import front_svg
from sweeps.results.snapshot import Snapshot
from sweeps.store.lock import driver_lock
from sweeps.store.picks import read_picks
from sweeps.store.prepared import locate
from sweeps.store.records import TrialRecord, number_of
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_digits
from sweeps.tracking.job_run import corpus_inputs, open_refused_run, open_trial_run, send_baseline, trial_run_name
from sweeps.tracking.run_note import PICTURE, run_note, trials_view
from sweeps.tracking.run_tags import NOTE
from sweeps.tracking.tracker import Figures, Tracker, tracker_of
from trainables.records.epochs import by_epoch
from trainables.records.files import atomic_write
from trainables.records.job import EpochResult, TrialResult


def finish(sweep: Sweep, recipe: Recipe, tracker: Tracker, state: str, progress: Progress) -> None:
    """Write the sweep's state, its front and the front's picture, and send MLflow what it lacks.

    A call that was cut off can be repeated.

    Args:
        state: `running` if the driver has died before the sweep's end.
    """
    sweep.update(state=state)
    tracker.try_now()
    before = tracker.failures
    send_baseline(sweep, recipe.baseline(), tracker)
    missing = _send_missing(sweep, recipe, tracker)
    found = Snapshot(sweep)
    record, trials, front = found.record, found.trials, found.pareto
    for trial in trials:
        if trial.state == "running" and trial.run_id:
            tracker.tag(trial.run_id, {"state": "stopped"})
            tracker.end(trial.run_id, "KILLED")
    if record.baseline is None and record.baseline_run_id is not None:
        tracker.end(record.baseline_run_id, "KILLED")
    if front:
        picture, pixels = sweep.folder / "front.svg", sweep.folder / PICTURE
        noisy = [one.key for one in found.front if one.hollow]
        shown = found.points, front, recipe.search.objectives, found.baseline
        with atomic_write(picture) as partial, atomic_write(pixels) as png:
            partial.write_text(front_svg(*shown, noisy=noisy, png=png), encoding="utf-8")
        for file in (picture, pixels):
            tracker.artifact(record.run_id, file)
    tracker.delete_strays(record.run_id, {trial.run_id for trial in trials if trial.run_id})
    now, earlier = {point.run_id for point in front if point.run_id}, tracker.marked(record.run_id, "pareto")
    for run in now ^ earlier:  # a sweep that went on has runs that were marked before and left the front since
        tracker.tag(run, {"pareto": str(run in now).lower()})
    tracker.log(record.run_id, Figures(_metrics(found)))
    note = run_note(found, tracker.experiment_id)
    tracker.keep_view(sweep.name, trials_view(sweep.name, recipe))
    tracker.tag(record.run_id, {"state": "interrupted" if state == "running" else state, NOTE: note})
    tracker.end(record.run_id, {"finished": "FINISHED", "failed": "FAILED"}.get(state, "KILLED"))
    try:
        _tell_models(found, tracker)
    except UserError as error:
        progress.say(f"registered models were not told the sweep's ε: {error}")
    if tracker.failures > before:
        what = f"{missing} trial(s)" if missing else "the sweep's end"
        progress.say(f"MLflow lacks {what}; when it answers again, send them with: {sweep.command('resume')}")
    else:
        sweep.update(end_due=False)


def _send_missing(sweep: Sweep, recipe: Recipe, tracker: Tracker) -> int:
    """Write each ended trial whose run is missing in MLflow, or has not ended, from the study and the trial's folder.

    Returns:
        The number of trials that MLflow still lacks.
    """
    runs, record = tracker.trial_runs(sweep.record.run_id), sweep.record
    # The last try of a number counts: the ones before it were interrupted.
    attributes = {number_of(trial): trial.user_attrs for trial in sweep.told()}
    ended = [t for t in sweep.trials() if t.state != "running" and "params" in attributes[t.number]]
    if runs is None:
        return len(ended)
    inputs, late, left = _inputs(sweep, recipe), dict(record.runs), 0
    for trial in ended:
        refused = trial.state == "refused"
        run = runs.get(trial_run_name(sweep, trial.number) + " refused" * refused)
        run_id = None if run is None else str(run.info.run_id)
        if run is None or run.info.status not in (("KILLED",) if refused else ("FINISHED", "FAILED")):
            before = tracker.failures
            run_id = _send(sweep, tracker, trial, attributes[trial.number], inputs, run_id)
            left += tracker.failures > before
        if run_id is not None and run_id != trial.run_id:
            late[trial.number] = run_id
    if late != record.runs:
        sweep.update(runs=late)
    return left


def _send(
    sweep: Sweep,
    tracker: Tracker,
    trial: TrialRecord,
    attributes: dict[str, Any],
    inputs: list[DatasetInput],
    run_id: str | None,
) -> str | None:
    """Write what the run `run_id` of a trial lacks, or a new run; return its id, None if MLflow did not take it."""
    if trial.state == "refused":
        return open_refused_run(tracker, sweep, trial.number, trial.params, trial.reason or "", run_id)
    spec = trial.spec
    run = open_trial_run(tracker, sweep, trial.number, trial.params, spec, inputs, run_id)
    run.epochs(by_epoch(attributes.get("epochs", [])))
    outcome: TrialResult | str = trial.reason or "failed"
    if trial.state in ("complete", "stopped") and trial.ledger is not None:
        kept = tuple(EpochResult(point.epoch, point.metrics) for point in trial.points)
        stopped = trial.reason if trial.state == "stopped" else None
        outcome = TrialResult(trial.metrics, trial.ledger, attributes.get("tags", {}), kept, stopped)
    run.close(spec, sweep.trial_folder(trial.number), outcome, trial.state, told_before=True)
    return run.run_id


def write_missing_end(sweep: Sweep, progress: Progress) -> None:
    """Write the end of a sweep whose driver has died before it had written it, for example in its last seconds.

    If MLflow does not take it, say so: what is in the sweep's folder can be shown nevertheless.
    """
    try:
        with driver_lock(sweep.folder, sweep.name):
            record, recipe = sweep.record, sweep.recipe
            state = "finished" if _nothing_left(sweep, recipe) else record.state
            finish(sweep, recipe, tracker_of(sweep), state, progress)
    except (UserError, OSError) as error:
        progress.say(f"note: MLflow lacks the end of {sweep.name}: {error}")


def _nothing_left(sweep: Sweep, recipe: Recipe) -> bool:
    """Return True if only the end was left to write when the driver of a running sweep died."""
    if sweep.record.state != "running" or recipe.attacks.at_end:
        return False
    states = [trial.state for trial in sweep.trials()]
    ended = sum(state in ("complete", "stopped", "failed") for state in states)
    return "complete" in states and ended >= sweep.record.wanted and "running" not in states


def tell_total(sweep: Sweep, tracker: Tracker) -> None:
    """Update the sweep's ε in MLflow, in its run and its models, after one more training on its corpus."""
    found = Snapshot(sweep)
    run_id = found.record.run_id
    tracker.log(run_id, Figures(_metrics(found)))
    tracker.tag(run_id, {NOTE: run_note(found, tracker.experiment_of(run_id))})
    _tell_models(found, tracker)


def _tell_models(found: Snapshot, tracker: Tracker) -> None:
    """Write the sweep's ε to the tags of all models that were registered from it."""
    cost = found.epsilon
    made = [*(pick.model for pick in read_picks(found.sweep)), *(origin.model for origin in found.final.values())]
    for model in dict.fromkeys(uri for uri in made if uri is not None):
        tracker.tag_model(model, {"epsilon_of_sweep": "unknown" if cost is None else epsilon_digits(cost)})


def _inputs(sweep: Sweep, recipe: Recipe) -> list[DatasetInput]:
    """Return the corpora as inputs of a run, or [] if they are gone: a sweep that has ended does not need them."""
    try:
        prepared = locate(recipe.baseline(), sweep.cache)
    except UserError:
        return []
    return corpus_inputs(recipe.baseline(), prepared.corpus, prepared.shadow, sweep)


def _metrics(found: Snapshot) -> dict[str, float]:
    """Return the metrics of the sweep's run: counts, and the sweep's own ε if it is known."""
    costs = {"epsilon_of_sweep": found.epsilon, "epsilon_user_of_sweep": found.epsilon_user}
    return {
        "trials_complete": float(sum(t.state == "complete" for t in found.trials)),
        "trials_failed": float(sum(t.state == "failed" for t in found.trials)),
        "front_size": float(len(found.pareto)),
    } | {name: cost for name, cost in costs.items() if cost is not None}
