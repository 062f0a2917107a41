"""A new sweep, or one that was stopped: checked, prepared, and run to its end on Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from edp.spec import UserError
from sweeps.config.configurations import trials_that_run
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.config.spending import of_trials
from sweeps.config.target_epsilon import check_batches
from sweeps.engine.address import check_address, ray_address
from sweeps.engine.capacity import check_memory
from sweeps.engine.finish import finish
from sweeps.engine.jobs.attack import attack_front, not_attacked
from sweeps.engine.last_words import spoken_for
from sweeps.engine.prepare import check_encoders, encode_missing, ensure_attack, num_privacy_units, open_corpora
from sweeps.engine.progress import Progress
from sweeps.engine.recorder import Recorder
from sweeps.engine.resources import Placement, placement
from sweeps.engine.schema_only import has_text, keep_schema_only
from sweeps.engine.session import interruptible, ray_session, stopping_jobs, worker_group
from sweeps.engine.study import sampler
from sweeps.engine.trials import run_baseline, run_trials
from sweeps.engine.watch import leave, ray_liveness, stall_reporter, stop_requests
from sweeps.store.corpora import keep_corpora
from sweeps.store.lock import claimed, driver_lock
from sweeps.store.plans import Plan, plan_of, released
from sweeps.store.prepared import Prepared
from sweeps.store.records import SweepRecord
from sweeps.store.settings import digests_of
from sweeps.store.storage import chosen_tracking_uri
from sweeps.store.study import StudyAway, away, study_storage
from sweeps.store.sweep import Sweep
from sweeps.text.paths import check_name
from sweeps.text.secrets import redacted
from sweeps.text.signals import BY_CTRL_C, SweepStopped, exit_code, how_to_go_on, stopped_by
from sweeps.tracking.job_run import corpus_inputs
from sweeps.tracking.run_note import first_note, trials_view
from sweeps.tracking.run_tags import environment_tags, flat
from sweeps.tracking.store import check_store, wrong_store
from sweeps.tracking.tracker import Figures, Tracker
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.corpora.load import check_private
from trainables.corpora.overlap import check_public
from trainables.corpora.types import Splits
from trainables.records.files import cause_of, disk_full
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
    part_of: str | None = None,
    plan: Plan | None = None,
) -> Sweep:
    """Run a new sweep to its end.

    Args:
        name: the sweep's name; by default the recipe's name and the time.
        tracking_uri: the MLflow store; by default `MLFLOW_TRACKING_URI`, or a file in `storage`.
        progress: shows what happens; by default on standard error.
        part_of: a command that runs this sweep as its first part. If the sweep is stopped, `SweepStopped` names this
            command instead of `edp-sweep resume`.
        plan: the private part of a sweep that chooses on a proxy corpus.

    Raises:
        UserError: if the recipe is wrong or has the plan `proxy`, which `sweeps.engine.jobs.release.run_proxy` follows,
            or if the corpora or the cluster do not allow the sweep. Nothing was made then.
        TrialError: if the shadow model or the baseline cannot be trained.
        SweepStopped: if the sweep was stopped.
    """
    progress = progress or Progress(Console(stderr=True))
    if name is not None:
        check_name("name", name)
    stem, recipe = load_recipe(recipe_name, overrides)
    if recipe.search.plan is not None:
        raise UserError(
            "search.plan = proxy: this runs the trials alone, on the private corpus; "
            "allowed: sweeps.engine.jobs.release.run_proxy, or search.plan=null"
        )
    if plan is None:  # a proxy corpus may be the text of a schema
        check_private(recipe.corpus)
    check_address(ray_address())  # before the corpora are read, which may take minutes
    sweep = Sweep.new(storage, name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
    with progress.doing("checking the recipe"), claimed(sweep.folder, sweep.name):
        uri = check_store(chosen_tracking_uri(tracking_uri, storage))
        if recipe.search.study is not None:
            study_storage(recipe.search.study)
        sampler(recipe.search)  # a class from elsewhere may be missing
        trials = list(bound_trials(recipe))
        check_encoders(trials)
        check_memory(trials, recipe.training.workers)
        progress.step("reading the corpora")
        prepared, corpora = open_corpora(recipe.baseline(), sweep.cache, sweep.folder, progress.say)
        if recipe.search.proxy is not None:  # this sweep does not read it, but `search.plan: proxy` would
            own = corpora.get(prepared.corpus) or load_corpus(recipe.corpus)
            check_public(recipe.corpus, own, {"search.proxy": recipe.search.proxy})
        units = num_privacy_units(recipe.baseline(), prepared, corpora)
        check_batches(trials, units)
        wanted = trials_that_run(recipe, recipe.search.trials, progress.say)
        _check_budget(sweep, recipe, units, wanted, [], progress)
        progress.step("starting Ray")
        with _ray(sweep, progress):
            progress.step("opening MLflow's store")
            placed = placement(recipe.training, recipe.resources, recipe.search)
            tracker = Tracker(uri, stem, storage / "mlflow-artifacts", progress.say)
            progress.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
            _begin(tracker, sweep, stem, recipe, plan, wanted)
            run_to_end(sweep, recipe, prepared, corpora, placed, tracker, progress, part_of or sweep.command("resume"))
    return sweep


def _check_budget(
    sweep: Sweep, recipe: Recipe, units: int, trials: int, going_on: list[Path], progress: Progress
) -> None:
    """Raise if the account of the corpus would pass its budget with so many more trials.

    Without a target ε their cost is not known, and the driver checks each trial.

    Args:
        going_on: folders of those of them that have begun.

    Raises:
        UserError: with the account, the cost and the budget.
    """
    recorder = Recorder(sweep.folder, recipe.baseline(), progress.say)
    recorder.check(of_trials(recipe, units, trials) or [], f"sweep {sweep.name}", going_on)


def _begin(tracker: Tracker, sweep: Sweep, recipe_name: str, recipe: Recipe, plan: Plan | None, wanted: int) -> None:
    """Open the sweep's own MLflow run, and write the sweep's recipe and record."""
    run_id = _open_run(tracker, sweep, recipe_name, recipe)
    sweep.save_recipe(recipe)
    if plan is not None:
        plan.write(sweep.folder)
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


def resume_sweep(
    sweep: Sweep, progress: Progress, tracking_uri: str | None = None, part_of: str | None = None, more: int = 0
) -> Sweep:
    """Go on with a sweep that was stopped, whatever stopped it. Finished trials stay as they are.

    What MLflow has lost is written again from the study and the trials' folders.

    Args:
        tracking_uri: the MLflow store, if it has moved since or needs a password. It must hold the sweep's run.
        part_of: see `start_sweep`.
        more: trials to run besides those that the sweep has or lacks.

    Raises:
        UserError: if the sweep may have no more trials, if it is still running, if `tracking_uri` does not hold its
            run, or if the corpora or the cluster no longer allow the sweep.
        SweepStopped: if the sweep was stopped again.
    """
    with progress.doing("reading the sweep"), driver_lock(sweep.folder, sweep.name):
        record, recipe = sweep.record, sweep.recipe
        sweep.restore()  # raises if the study has lost trials, which would otherwise run again
        uri = check_store(tracking_uri) if tracking_uri is not None else record.tracking_uri
        artifacts = sweep.folder.parent / "mlflow-artifacts"
        tracker = Tracker(uri, record.recipe, artifacts, progress.say, new=tracking_uri is None)
        if not tracker.holds(record.run_id):
            if tracking_uri is not None:
                raise wrong_store(uri, f"holds no run {record.run_id}")
            progress.say(f"MLflow's store {redacted(uri)} has lost {sweep.name}: writing it again")
            _open_run_again(tracker, sweep)
            record = sweep.record
        moved = {"tracking_uri": redacted(uri)}  # saved only after all checks, so that a refusal changes nothing
        wanted = record.wanted
        if more:
            _check_open(sweep)
            wanted = trials_that_run(recipe, record.wanted + more, progress.say, already=record.wanted)
        if record.state == "finished" and not more:
            sweep.update(**moved)
            attack_rest(sweep, recipe, tracker, progress)
            finish(sweep, recipe, tracker, record.state, progress)  # no trial is left to run, but MLflow may lack some
            return sweep
        check_address(ray_address())
        progress.step("reading the corpora")
        prepared, corpora = open_corpora(recipe.baseline(), sweep.cache, sweep.folder, progress.say)
        before = sweep.trials()
        ended = sum(trial.state not in ("refused", "running", "interrupted") for trial in before)
        going_on = [sweep.trial_folder(one.number) for one in before if one.state in ("running", "interrupted")]
        units = num_privacy_units(recipe.baseline(), prepared, corpora)
        _check_budget(sweep, recipe, units, max(0, wanted - ended), going_on, progress)
        progress.step("starting Ray")
        with _ray(sweep, progress):
            placed = placement(recipe.training, recipe.resources, recipe.search)
            progress.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
            sweep.update(state="running", pid=os.getpid(), error=None, end_due=True, wanted=wanted, **moved)
            tracker.reopen(record.run_id)
            run_to_end(sweep, recipe, prepared, corpora, placed, tracker, progress, part_of or sweep.command("resume"))
    return sweep


def _check_open(sweep: Sweep) -> None:
    """Raise if more trials would change what the sweep has already given away.

    Raises:
        UserError: with the reason.
    """
    if released(sweep, plan_of(sweep)) is not None:
        raise UserError(
            f"trials: {sweep.name} may have no more: its model was chosen among them and released; start another"
        )
    if (sweep.folder / f"{sweep.name}-release.yaml").exists():
        raise UserError(
            f"trials: {sweep.name} may have no more: its model was chosen among them, and its release has begun; "
            f"allowed: {sweep.command('resume')}, which goes on with it"
        )


def bound_trials(recipe: Recipe) -> Iterator[TrialSpec]:
    """Yield the trials that have each searched setting at one of its bounds, except for invalid combinations."""
    for params in bound_combinations(recipe.dimensions, recipe.shapes):
        with suppress(ValidationError):
            yield recipe.trial(params)


@contextmanager
def _ray(sweep: Sweep, progress: Progress) -> Iterator[None]:
    """Connect to Ray, or start it, with last words for a process that Ray ends meanwhile."""
    again = "this process ended while Ray started; type the command again"
    with spoken_for(again, progress.console) as hush, ray_session(sweep.log, progress.say):
        hush()
        yield


def run_to_end(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    corpora: dict[Path, Splits],
    placed: Placement,
    tracker: Tracker,
    progress: Progress,
    command: str,
) -> None:
    """Train shadow model, baseline and trials, attack the front if the recipe asks for it, and record the end.

    Args:
        command: the command that goes on with the sweep after a stop.

    Raises:
        TrialError: if the shadow model or the baseline cannot be trained.
        SweepStopped: if the sweep was stopped.
    """
    state, error, how = "failed", None, how_to_go_on(command)

    def farewell(what: str) -> None:
        progress.close()
        _finish(sweep, recipe, tracker, "stopped", what, progress)

    def last_words(what: str) -> None:
        hush()
        progress.last_words(f"{what}; {how}")

    def give_up() -> None:
        leave(BY_CTRL_C, farewell, last_words, exit_code(BY_CTRL_C))

    try:
        with (
            spoken_for(f"the sweep's process was ended from outside, or by Ray; {how}", progress.console) as hush,
            ray_liveness(farewell, last_words),
            stall_reporter(progress, placed.group),
            stop_requests(sweep.folder),
            interruptible(),
        ):
            base = recipe.baseline()
            progress.expect(sweep.record.wanted, 0, recipe.training.epochs)
            progress.step("encoding the corpora")
            encode_missing(base, prepared, corpora, progress.say, bound_trials(recipe))
            tracker.inputs(sweep.record.run_id, corpus_inputs(base, prepared.corpus, prepared.shadow, sweep))
            with (
                worker_group(sweep, placed, recipe.resources, progress) as workers,
                stopping_jobs(workers.stop_signal, progress.say, how, give_up),
            ):
                progress.step("training the shadow model")
                ensure_attack(base, prepared, sweep.folder / "shadow", workers.run, progress.epoch)
                if sweep.record.baseline is None:
                    progress.step("training the SGD baseline")
                    run_baseline(sweep, base, prepared, workers.run, tracker, progress)
                if sweep.record.schema_only is None and has_text(prepared):
                    progress.step("measuring what the schema says alone")
                    keep_schema_only(sweep, base, prepared, tracker, progress)
                progress.step("running trials")
                run_trials(sweep, recipe, prepared, placed, workers, tracker, progress)
                progress.step("ending the workers")
            state = "finished"
            if recipe.attacks.at_end:
                progress.step("attacking the front")
                attack_front(sweep, prepared, tracker, progress)
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
        _finish(sweep, recipe, tracker, state, error, progress)


def attack_rest(sweep: Sweep, recipe: Recipe, tracker: Tracker, progress: Progress) -> None:
    """Attack the points of a finished sweep's front that have no attack yet, for example because one failed."""
    if not not_attacked(sweep):
        return
    base = recipe.baseline()
    prepared, corpora = open_corpora(base, sweep.cache, sweep.folder, progress.say)
    with ray_session(sweep.log, progress.say):
        encode_missing(base, prepared, corpora, progress.say, bound_trials(recipe))
        attack_front(sweep, prepared, tracker, progress)


def _finish(sweep: Sweep, recipe: Recipe, tracker: Tracker, state: str, error: str | None, progress: Progress) -> None:
    """Call `finish`. Leave out what a full disk does not take, and what a stopped sweep's study cannot say now."""
    progress.step("writing the sweep's end")
    try:
        sweep.update(error=redacted(error) if error is not None else None)
        finish(sweep, recipe, tracker, state, progress)
    except Exception as problem:
        if disk_full(problem) is None and not (state == "stopped" and isinstance(problem, StudyAway)):
            raise
