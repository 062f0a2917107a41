"""A sweep from recipe to front: started, or gone on with after whatever stopped it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from edp.spec import UserError
from sweeps.attacking.attack import attack_front, not_attacked
from sweeps.commands.finish import finish
from sweeps.formatting.names import check_name
from sweeps.formatting.secrets import redacted
from sweeps.formatting.signals import exit_code, stopped_by
from sweeps.recipes.loading import load_recipe
from sweeps.recipes.random_stopping import draw_number
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.space import bound_combinations
from sweeps.recipes.target_epsilon import check_batches, check_candidates
from sweeps.run.capacity import check_memory
from sweeps.run.prepare import Prepared, check_encoders, encode_missing, ensure_attack, num_privacy_units, open_corpora
from sweeps.run.progress import Progress
from sweeps.run.resources import Placement, placement
from sweeps.run.session import interruptible, ray_session, stopping_jobs, worker_group
from sweeps.run.trials import SweepFailed, release_best, run_baseline, run_trials
from sweeps.run.watch import ray_liveness, stall_reporter
from sweeps.state.corpora import keep_corpora
from sweeps.state.lock import claimed, driver_lock
from sweeps.state.records import SweepRecord
from sweeps.state.shell import default_tracking_uri
from sweeps.state.study import study_storage
from sweeps.state.sweep import Sweep
from sweeps.tracking.corpus_inputs import corpus_inputs
from sweeps.tracking.run_note import first_note
from sweeps.tracking.run_tags import environment_tags, flat
from sweeps.tracking.store_check import check_store
from sweeps.tracking.tracker import Tracker
from trainables.corpora import load_corpus
from trainables.corpora.types import Splits
from trainables.pretraining.overlap import check_public
from trainables.records.files import disk_full
from trainables.records.job import TrialStopped
from trainables.spec import TrialSpec

__all__ = ["SweepFailed", "SweepStopped", "resume_sweep", "start_sweep"]


class SweepStopped(RuntimeError):
    """A sweep, or what it is a part of, ended before its end; its text says why, and how to go on.

    Attributes:
        code: exit code of a process that ends with it.
    """

    def __init__(self, reason: str, how_to_go_on: str) -> None:
        super().__init__(f"{reason}; {how_to_go_on}")
        self.code = exit_code(reason)


def how_to_go_on(command: str) -> str:
    """The command, in words."""
    return f"go on with: {command}"


@contextmanager
def going_on_with(command: str) -> Iterator[None]:
    """Tells whoever stops the block the command that goes on with it.

    Raises:
        SweepStopped: in the place of a KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise SweepStopped(stopped_by(interrupt), how_to_go_on(command)) from None


def start_sweep(
    recipe_name: str,
    overrides: list[str],
    *,
    name: str | None = None,
    storage: Path = Path("runs"),
    tracking_uri: str | None = None,
    progress: Progress | None = None,
    part_of: str | None = None,
) -> Sweep:
    """Runs a new sweep to its end.

    Args:
        name: by default the recipe's, and the time.
        tracking_uri: of the MLflow store; by default `MLFLOW_TRACKING_URI`, or a file in `storage`.
        progress: shows what happens; by default on standard error.
        part_of: the command that runs it, where that does more and goes on where it was stopped; told to whoever stops
            it, in the place of `edp-sweep resume`.

    Raises:
        UserError: before anything was made, when the recipe, the corpora or the cluster cannot do it.
        TrialError: when the shadow model or the baseline cannot be trained.
        SweepStopped: when it was stopped.
    """
    progress = progress or Progress(Console(stderr=True))
    if name is not None:
        check_name("name", name)
    stem, recipe = load_recipe(recipe_name, overrides)
    if recipe.search.secret:
        check_candidates(recipe)
    sweep = Sweep.new(storage, name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
    with claimed(sweep.folder, sweep.name):
        uri = check_store(tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or default_tracking_uri(storage))
        if recipe.search.study is not None:
            study_storage(recipe.search.study)
        trials = list(_corner_trials(recipe))
        check_encoders(trials)
        check_memory(trials, recipe.training.workers)
        prepared, corpora = open_corpora(recipe.baseline(), sweep.cache, sweep.folder, progress.say)
        if recipe.search.stand_in is not None:  # nothing here reads it: a plan would
            own = corpora.get(prepared.corpus) or load_corpus(recipe.corpus)
            check_public(recipe.corpus, own, {"search.stand_in": recipe.search.stand_in})
        check_batches(trials, num_privacy_units(recipe.baseline(), prepared, corpora))
        with ray_session(sweep.log, progress.say):
            placed = placement(recipe.training, recipe.resources, recipe.search)
            tracker = Tracker(uri, stem, storage / "mlflow-artifacts", progress.say)
            progress.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
            _begin(tracker, sweep, stem, recipe)
            _run(sweep, recipe, prepared, corpora, placed, tracker, progress, part_of or sweep.command("resume"))
    return sweep


def _begin(tracker: Tracker, sweep: Sweep, recipe_name: str, recipe: Recipe) -> None:
    """Opens the sweep's own MLflow run, and keeps its recipe and record."""
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
    sweep.save_recipe(recipe)
    keep_corpora(sweep.folder, recipe.baseline())
    sweep.save(
        SweepRecord(
            name=sweep.name,
            recipe=recipe_name,
            state="running",
            tracking_uri=redacted(tracker.uri),
            run_id=run_id,
            wanted=draw_number(recipe.search.trials) if recipe.search.secret else recipe.search.trials,
            pid=os.getpid(),
        )
    )
    tracker.artifact(run_id, sweep.folder / "recipe.yaml")


def resume_sweep(
    sweep: Sweep, progress: Progress, tracking_uri: str | None = None, part_of: str | None = None
) -> Sweep:
    """Goes on with a sweep that was stopped, whatever stopped it. Finished trials stay as they are.

    Args:
        tracking_uri: where the store has moved, or its password.
        part_of: as `start_sweep`.

    Raises:
        UserError: when the sweep is still running, `tracking_uri` holds no run of it, or the corpora or the cluster can
            no longer do it.
        SweepStopped: when it was stopped again.
    """
    with driver_lock(sweep.folder, sweep.name):
        record, recipe = sweep.record, sweep.recipe
        sweep.told(recipe)  # a study that has lost its trials would run them again
        uri = check_store(tracking_uri) if tracking_uri is not None else record.tracking_uri
        artifacts = sweep.folder.parent / "mlflow-artifacts"
        tracker = Tracker(uri, record.recipe, artifacts, progress.say, new=False)
        if tracking_uri is not None:
            tracker.check_holds(record.run_id)
        moved = {"tracking_uri": redacted(uri)}  # is written down when nothing is left that could refuse
        if record.state == "finished":
            sweep.update(**moved)
            _attack_rest(sweep, recipe, tracker, progress)
            finish(sweep, recipe, tracker, record.state, progress)  # nothing to run; MLflow may lack something
            return sweep
        prepared, corpora = open_corpora(recipe.baseline(), sweep.cache, sweep.folder, progress.say)
        with ray_session(sweep.log, progress.say):
            placed = placement(recipe.training, recipe.resources, recipe.search)
            progress.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
            sweep.update(state="running", pid=os.getpid(), error=None, **moved)
            tracker.reopen(record.run_id)
            _run(sweep, recipe, prepared, corpora, placed, tracker, progress, part_of or sweep.command("resume"))
    return sweep


def _attack_rest(sweep: Sweep, recipe: Recipe, tracker: Tracker, progress: Progress) -> None:
    """Attacks what a finished sweep's end has left out, as when one attack failed."""
    if not not_attacked(sweep):
        return
    base = recipe.baseline()
    prepared, corpora = open_corpora(base, sweep.cache, sweep.folder, progress.say)
    with ray_session(sweep.log, progress.say):
        encode_missing(base, prepared, corpora, progress.say, _corner_trials(recipe))
        attack_front(sweep, prepared, tracker, progress)


def _run(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    corpora: dict[Path, Splits],
    placed: Placement,
    tracker: Tracker,
    progress: Progress,
    command: str,
) -> None:
    state, error, how = "failed", None, how_to_go_on(command)

    def ray_died(what: str) -> None:
        progress.__exit__()
        _finish(sweep, recipe, tracker, "stopped", what, progress)

    def last_words(what: str) -> None:
        progress.last_words(f"{what}; {how}")

    try:
        with ray_liveness(ray_died, last_words), stall_reporter(progress, placed.group), interruptible():
            base = recipe.baseline()
            progress.expect(sweep.record.wanted, 0, recipe.training.epochs)
            corner_trials = _corner_trials(recipe)
            encode_missing(base, prepared, corpora, progress.say, corner_trials)
            tracker.inputs(sweep.record.run_id, corpus_inputs(base, prepared.corpus, prepared.shadow))
            with (
                worker_group(sweep, placed, progress) as workers,
                stopping_jobs(workers.stop_signal, progress.say, how),
            ):
                ensure_attack(base, prepared, sweep.folder / "shadow", workers.run, progress.epoch)
                if sweep.record.baseline is None:
                    run_baseline(sweep, base, prepared, workers.run, tracker, progress)
                run_trials(sweep, recipe, prepared, placed, workers, tracker, progress)
            state = "finished"
            if recipe.search.secret:
                sweep.update(state=state)
                release_best(sweep, tracker)
            if recipe.attacks.at_end:
                attack_front(sweep, prepared, tracker, progress)
    except KeyboardInterrupt as interrupt:
        state = "stopped"
        raise SweepStopped(stopped_by(interrupt), how) from None
    except (
        SystemExit
    ):  # what Ray raises in whoever waits for it when it is gone; it may come before the ray_liveness does
        state, error = "stopped", "Ray is gone"
        raise SweepStopped(error, how) from None
    except TrialStopped as stopped:
        state, error = "stopped", str(stopped)
        raise SweepStopped(error, how) from None
    except Exception as problem:
        error = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        if (full := disk_full(problem)) is not None:
            state, error = "stopped", full
            raise SweepStopped(full, how) from None
        raise
    finally:
        _finish(sweep, recipe, tracker, state, error, progress)


def _finish(sweep: Sweep, recipe: Recipe, tracker: Tracker, state: str, error: str | None, progress: Progress) -> None:
    """As `finish`; on a full disk as much of it as can be: the study is whole either way."""
    try:
        sweep.update(error=redacted(error) if error is not None else None)
        finish(sweep, recipe, tracker, state, progress)
    except Exception as problem:
        if disk_full(problem) is None:
            raise


def _corner_trials(recipe: Recipe) -> Iterator[TrialSpec]:
    """Yield a trial of each bound combination of the space, less those whose settings do not fit together."""
    for params in bound_combinations(recipe.dimensions, recipe.shapes):
        with suppress(ValidationError):
            yield recipe.trial(params)
