"""A new sweep, or one that was stopped: checked, prepared, and run to its end on Ray."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from edp.spec import UserError
from sweeps.config.configurations import trials_that_run
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.config.spending import of_trials
from sweeps.engine.address import check_address, ray_address
from sweeps.engine.dying import interruptible, leave, print_if_killed, ray_liveness, stop_requests, stopping_jobs
from sweeps.engine.finish import finish
from sweeps.engine.jobs.attack import attack_front, not_attacked
from sweeps.engine.opening import Opening, Training
from sweeps.engine.placement import Placement
from sweeps.engine.prepare import RunJob, blamed_on, has_text, keep_schema_only
from sweeps.engine.progress import Progress
from sweeps.engine.session import worker_group
from sweeps.engine.study import sampler
from sweeps.engine.trials import run_trials
from sweeps.store.lock import claimed, driver_lock
from sweeps.store.plans import PLAN, Plan, plan_of, released
from sweeps.store.records import SweepRecord
from sweeps.store.storage import chosen_tracking_uri
from sweeps.store.study import StudyAway, away, study_storage
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import digests_of, keep_corpora
from sweeps.text.paths import check_name
from sweeps.text.secrets import redacted
from sweeps.text.signals import BY_CTRL_C, SweepStopped, exit_code, how_to_go_on, stopped_by
from sweeps.tracking.job_run import JobRun, corpus_inputs, open_baseline_run
from sweeps.tracking.run_note import first_note, trials_view
from sweeps.tracking.run_tags import environment_tags, flat
from sweeps.tracking.store import check_store, wrong_store
from sweeps.tracking.tracker import Figures, Tracker, tracker_of
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.corpora.load import check_private
from trainables.corpora.overlap import check_public
from trainables.records.files import cause_of, disk_full, write_json
from trainables.records.job import TrialStopped
from trainables.workers.client import death_in


def start_sweep(
    recipe_name: str,
    overrides: list[str],
    *,
    name: str | None = None,
    storage: Path = Path("runs"),
    tracking_uri: str | None = None,
    progress: Progress | None = None,
    plan: Plan | None = None,
) -> Sweep:
    """Run a new sweep to its end.

    Args:
        name: the sweep's name; by default the recipe's name and the time.
        tracking_uri: the MLflow store; by default `MLFLOW_TRACKING_URI`, or a file in `storage`.
        progress: shows what happens; by default on standard error.
        plan: the private part of a sweep that chooses on a proxy corpus.

    Raises:
        UserError: if the recipe is wrong or has the plan `proxy`, which `sweeps.engine.jobs.release.run_proxy` follows,
            or if the corpora or the cluster do not allow the sweep. Nothing was made then.
        TrialError: if the shadow model or the baseline cannot be trained.
        SweepStopped: if the sweep was stopped.
    """
    progress = progress or Progress()
    if name is not None:
        check_name("name", name)
    stem, recipe = load_recipe(recipe_name, overrides)
    if recipe.search.plan is not None:
        raise UserError(
            "search.plan = proxy: this runs the trials alone, on the private corpus; "
            "allowed: sweeps.run, or search.plan=null"
        )
    if plan is None:  # a proxy corpus may be the text of a schema
        check_private(recipe.corpus)
    check_address(ray_address())  # before the corpora are read, which may take minutes
    sweep = Sweep.new(storage, name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
    with progress.doing("checking the recipe"), claimed(sweep.folder, sweep.name), stop_requests(sweep.folder):
        uri = check_store(chosen_tracking_uri(tracking_uri, storage))
        if recipe.search.study is not None:
            study_storage(recipe.search.study)
        sampler(recipe.search)  # a class from elsewhere may be missing
        trials = list(bound_trials(recipe))
        opened = Opening(sweep, recipe.baseline(), progress, trials=trials)
        if recipe.search.proxy is not None:  # this sweep does not read it, but `search.plan: proxy` would
            own = opened.read.get(opened.prepared.corpus) or load_corpus(recipe.corpus)
            check_public(recipe.corpus, own, {"search.proxy": recipe.search.proxy})
        wanted = trials_that_run(recipe, recipe.search.trials, progress.say)
        # Without a target ε the cost of a trial is not known, and the driver checks each trial.
        opened.recorder.check(of_trials(recipe, opened.units, wanted) or [], f"sweep {sweep.name}")
        with opened.on_ray():
            placed = opened.fit(f"sweep {sweep.name}", recipe.training, recipe.resources, recipe.search)
            progress.step("opening MLflow's store")
            tracker = Tracker(uri, stem, sweep.artifacts, progress.say)
            _begin(tracker, sweep, stem, recipe, plan, wanted)
            run_to_end(sweep, opened, placed, tracker)
    return sweep


def _begin(tracker: Tracker, sweep: Sweep, recipe_name: str, recipe: Recipe, plan: Plan | None, wanted: int) -> None:
    """Open the sweep's own MLflow run, and write the sweep's recipe and record."""
    run_id = _open_run(tracker, sweep, recipe_name, recipe)
    sweep.save_recipe(recipe)
    if plan is not None:
        write_json(sweep.folder / PLAN, plan)
    keep_corpora(sweep.folder, recipe.baseline())
    sweep.save(
        SweepRecord(
            name=sweep.name,
            recipe=recipe_name,
            state="running",
            tracking_uri=redacted(tracker.uri),
            run_id=run_id,
            wanted=wanted,
            pid=os.getpid(),
            end_due=True,
            settings=digests_of(recipe),
        )
    )
    tracker.artifact(run_id, sweep.folder / "recipe.yaml")


def _open_run(tracker: Tracker, sweep: Sweep, recipe_name: str, recipe: Recipe) -> str:
    """Open the sweep's own MLflow run, and return its id.

    Raises:
        UserError: if the store does not take it.
    """
    run_id = tracker.start(
        sweep.name,
        params=flat(recipe.model_dump(mode="json", exclude={"space", "description"})),
        tags={
            **environment_tags(),
            "role": "sweep",
            "sweep": sweep.name,
            "recipe": recipe_name,
            "corpus": recipe.corpus.name,
            "model": recipe.model.kind,
            "method": ", ".join(recipe.methods),
            "state": "running",
        },
        note=first_note(sweep, recipe),
    )
    if run_id is None:
        raise UserError(f"tracking-uri = {redacted(tracker.uri)!r} takes no runs; allowed: a store that can be written")
    tracker.keep_view(sweep.name, trials_view(sweep.name, recipe))
    return run_id


def _open_run_again(tracker: Tracker, sweep: Sweep) -> None:
    """Open a new MLflow run of a sweep that MLflow has lost. `finish` writes its trials again."""
    record, recipe = sweep.record, sweep.recipe
    run_id = _open_run(tracker, sweep, record.recipe, recipe)
    tracker.artifact(run_id, sweep.folder / "recipe.yaml")
    for name, metrics in (("baseline", record.baseline), ("schema_only", record.schema_only)):
        figures = {f"{name}_{key}": value for key, value in (metrics or {}).items() if key != "run_id"}
        tracker.log(run_id, Figures(figures))
    sweep.update(
        run_id=run_id,
        study=sweep.study_name(recipe),
        runs={trial.number: None for trial in sweep.trials()},
        baseline_run_id=None,
        baseline_tracked=False,
    )


def resume_sweep(sweep: Sweep, progress: Progress, tracking_uri: str | None = None, more: int = 0) -> Sweep:
    """Go on with a sweep that was stopped, whatever stopped it. Finished trials stay as they are.

    What MLflow has lost is written again from the study and the trials' folders.

    Args:
        tracking_uri: the MLflow store, if it has moved since or needs a password. It must hold the sweep's run.
        more: trials to run besides those that the sweep has or lacks.

    Raises:
        UserError: if the sweep may have no more trials, if it is still running, if `tracking_uri` does not hold its
            run, or if the corpora or the cluster no longer allow the sweep.
        SweepStopped: if the sweep was stopped again.
    """
    with progress.doing("reading the sweep"), driver_lock(sweep.folder, sweep.name), stop_requests(sweep.folder):
        record, recipe = sweep.record, sweep.recipe
        sweep.restore()  # raises if the study has lost trials, which would otherwise run again
        uri = check_store(tracking_uri) if tracking_uri is not None else record.tracking_uri
        tracker = tracker_of(sweep, uri, progress.say, new=tracking_uri is None)
        if not tracker.holds(record.run_id):
            if tracking_uri is not None:
                raise wrong_store(uri, f"holds no run {record.run_id}")
            progress.say(f"MLflow's store {redacted(uri)} has lost {sweep.name}: writing it again")
            _open_run_again(tracker, sweep)
            record = sweep.record
        moved = {"tracking_uri": redacted(uri)}  # saved only after all checks, so that a refusal changes nothing
        wanted = record.wanted
        if more:
            if released(sweep, plan_of(sweep)) is not None:
                raise UserError(
                    f"trials: {sweep.name} may have no more: its model was chosen among them and released; "
                    "start another"
                )
            if (sweep.folder / f"{sweep.name}-release.yaml").exists():
                raise UserError(
                    f"trials: {sweep.name} may have no more: its model was chosen among them, and its release has "
                    f"begun; allowed: {sweep.command('resume')}, which goes on with it"
                )
            wanted = trials_that_run(recipe, record.wanted + more, progress.say, already=record.wanted)
        if record.state == "finished" and not more:
            sweep.update(**moved)
            attack_rest(sweep, tracker, progress)
            finish(sweep, recipe, tracker, record.state, progress)  # no trial is left to run, but MLflow may lack some
            return sweep
        check_address(ray_address())
        opened = Opening(sweep, recipe.baseline(), progress)
        before = sweep.trials()
        ended = sum(trial.state not in ("refused", "running", "interrupted") for trial in before)
        begun = [one for one in before if one.state in ("running", "interrupted") and one.params]
        going_on = {sweep.trial_folder(one.number): one.spec for one in begun}
        cost = of_trials(recipe, opened.units, max(0, wanted - ended))
        opened.recorder.check(cost or [], f"sweep {sweep.name}", going_on)
        with opened.on_ray():
            placed = opened.fit(f"sweep {sweep.name}", recipe.training, recipe.resources, recipe.search)
            sweep.update(state="running", pid=os.getpid(), error=None, end_due=True, wanted=wanted, **moved)
            tracker.reopen(record.run_id)
            run_to_end(sweep, opened, placed, tracker)
    return sweep


def bound_trials(recipe: Recipe) -> Iterator[TrialSpec]:
    """Yield the trials that have each searched setting at one of its bounds, except for invalid combinations."""
    for params in bound_combinations(recipe.dimensions, recipe.shapes):
        with suppress(ValidationError):
            yield recipe.trial(params)


def run_to_end(sweep: Sweep, opened: Opening, placed: Placement, tracker: Tracker) -> None:
    """Train shadow model, baseline and trials, attack the front if the recipe asks for it, and record the end.

    Raises:
        TrialError: if the shadow model or the baseline cannot be trained.
        SweepStopped: if the sweep was stopped.
    """
    recipe, progress = sweep.recipe, opened.progress
    state, error, how = "failed", None, how_to_go_on(sweep.command("resume"))

    def farewell(what: str) -> None:
        progress.close()
        _finish(sweep, tracker, "stopped", what, progress)

    def last_words(what: str) -> None:
        cancel()
        progress.last_words(f"{what}; {how}")

    def give_up() -> None:
        leave(BY_CTRL_C, farewell, last_words, exit_code(BY_CTRL_C))

    try:
        with (
            print_if_killed(
                f"the sweep's process was ended from outside, or by Ray; {how}", progress.console
            ) as cancel,
            ray_liveness(farewell, last_words),
            interruptible(),
        ):
            progress.expect(sweep.record.wanted, 0, recipe.training.epochs)
            opened.encode(bound_trials(recipe))
            inputs = corpus_inputs(opened.spec, opened.prepared.corpus, opened.prepared.shadow, sweep)
            tracker.inputs(sweep.record.run_id, inputs)
            with (
                worker_group(sweep, placed, recipe.resources, progress) as workers,
                stopping_jobs(workers.stop_signal, progress.say, how, give_up),
            ):
                opened.teach(workers.run)
                if sweep.record.baseline is None:
                    progress.step("training the SGD baseline")
                    run_baseline(sweep, opened, workers.run, tracker)
                if sweep.record.schema_only is None and has_text(opened.prepared):
                    progress.step("measuring what the schema says alone")
                    keep_schema_only(sweep, opened.spec, opened.prepared, tracker)
                progress.step("running trials")
                run_trials(sweep, opened, placed, workers, tracker)
                progress.step("ending the workers")
            state = "finished"
            if recipe.attacks.at_end:
                progress.step("attacking the front")
                attack_front(sweep, opened, tracker)
    except KeyboardInterrupt as interrupt:
        state = "stopped"
        raise SweepStopped(stopped_by(interrupt), how) from None
    except SystemExit:  # Ray raises it in a waiting call when its processes are gone, before `ray_liveness` notices
        state, error = "stopped", "Ray is gone"
        raise SweepStopped(error, how) from None
    except TrialStopped as stopped:
        state, error = "stopped", str(stopped)
        raise SweepStopped(error, how) from None
    except Exception as problem:
        error = (str(cause_of(problem)).splitlines() or [type(problem).__name__])[0]
        if (reason := disk_full(problem) or death_in(problem) or away(problem)) is not None:
            state, error = "stopped", reason
            raise SweepStopped(error, how) from None
        raise
    finally:
        _finish(sweep, tracker, state, error, progress)


def run_baseline(sweep: Sweep, opened: Opening, run: RunJob, tracker: Tracker) -> None:
    """Train plain SGD on the sweep's corpus, or continue it, and keep its metrics in the sweep's record.

    The front is compared with it. Its MLflow run is a child of the sweep's run.

    Raises:
        TrialError: if the training fails.
    """
    spec, at = opened.spec, opened.prepared

    def open_run() -> JobRun:
        tracked = open_baseline_run(sweep, spec, tracker, corpus_inputs(spec, at.corpus, at.shadow, sweep))
        sweep.update(baseline_run_id=tracked.run_id)
        return tracked

    training = Training("baseline", spec, sweep.folder / "baseline", open_run, part="baseline")
    opened.begin(training)
    show = functools.partial(opened.progress.epoch, "SGD baseline", spec.training.epochs)
    with blamed_on("SGD baseline"):
        result, tracked = opened.run(training, run, show)
    sweep.update(baseline={"run_id": tracked.run_id, **result.metrics}, baseline_tracked=tracked.whole)
    tracker.log(sweep.record.run_id, Figures({f"baseline_{k}": v for k, v in result.metrics.items()}))


def attack_rest(sweep: Sweep, tracker: Tracker, progress: Progress) -> None:
    """Attack the points of a finished sweep's front that have no attack yet, for example because one failed."""
    if not not_attacked(sweep):
        return
    opened = Opening(sweep, sweep.recipe.baseline(), progress)
    with opened.on_ray():
        opened.encode(bound_trials(sweep.recipe))
        attack_front(sweep, opened, tracker)


def _finish(sweep: Sweep, tracker: Tracker, state: str, error: str | None, progress: Progress) -> None:
    """Call `finish`. Leave out what a full disk does not take, and what a stopped sweep's study cannot say now."""
    progress.step("writing the sweep's end")
    try:
        sweep.update(error=redacted(error) if error is not None else None)
        finish(sweep, sweep.recipe, tracker, state, progress)
    except Exception as problem:
        if disk_full(problem) is None and not (state == "stopped" and isinstance(problem, StudyAway)):
            raise
