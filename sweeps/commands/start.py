"""A new sweep, or one that was stopped: checked, prepared, and run to its end."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from rich.console import Console

from edp.spec import UserError
from sweeps.commands.finish import finish
from sweeps.commands.run_to_end import attack_rest, bound_trials, run_to_end
from sweeps.config.loading import load_recipe
from sweeps.config.random_stopping import draw_number
from sweeps.config.recipe import Recipe
from sweeps.config.target_epsilon import check_batches, check_candidates
from sweeps.run.capacity import check_memory
from sweeps.run.prepare import check_encoders, num_privacy_units, open_corpora
from sweeps.run.progress import Progress
from sweeps.run.resources import placement
from sweeps.run.session import ray_session
from sweeps.store.corpora import keep_corpora
from sweeps.store.lock import claimed, driver_lock
from sweeps.store.records import SweepRecord
from sweeps.store.storage import default_tracking_uri
from sweeps.store.study import study_storage
from sweeps.store.sweep import Sweep
from sweeps.text.paths import check_name
from sweeps.text.secrets import redacted
from sweeps.tracking.run_note import first_note
from sweeps.tracking.run_tags import environment_tags, flat
from sweeps.tracking.store import check_store
from sweeps.tracking.tracker import Tracker
from trainables.corpora import load_corpus
from trainables.pretraining.overlap import check_public


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
    """Run a new sweep to its end.

    Args:
        name: by default the recipe's, and the time.
        tracking_uri: of the MLflow store; by default `MLFLOW_TRACKING_URI`, or a file in `storage`.
        progress: shows what happens; by default on standard error.
        part_of: the command that runs the sweep and more, and goes on where it was stopped. `SweepStopped` names it in
            the place of `edp-sweep resume`.

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
        trials = list(bound_trials(recipe))
        check_encoders(trials)
        check_memory(trials, recipe.training.workers)
        prepared, corpora = open_corpora(recipe.baseline(), sweep.cache, sweep.folder, progress.say)
        if recipe.search.proxy is not None:  # nothing here reads it: a plan would
            own = corpora.get(prepared.corpus) or load_corpus(recipe.corpus)
            check_public(recipe.corpus, own, {"search.proxy": recipe.search.proxy})
        check_batches(trials, num_privacy_units(recipe.baseline(), prepared, corpora))
        with ray_session(sweep.log, progress.say):
            placed = placement(recipe.training, recipe.resources, recipe.search)
            tracker = Tracker(uri, stem, storage / "mlflow-artifacts", progress.say)
            progress.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
            _begin(tracker, sweep, stem, recipe)
            run_to_end(sweep, recipe, prepared, corpora, placed, tracker, progress, part_of or sweep.command("resume"))
    return sweep


def _begin(tracker: Tracker, sweep: Sweep, recipe_name: str, recipe: Recipe) -> None:
    """Open the sweep's own MLflow run, and write its recipe and record."""
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
    """Go on with a sweep that was stopped, whatever stopped it. Finished trials stay as they are.

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
            attack_rest(sweep, recipe, tracker, progress)
            finish(sweep, recipe, tracker, record.state, progress)  # nothing to run; MLflow may lack something
            return sweep
        prepared, corpora = open_corpora(recipe.baseline(), sweep.cache, sweep.folder, progress.say)
        with ray_session(sweep.log, progress.say):
            placed = placement(recipe.training, recipe.resources, recipe.search)
            progress.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
            sweep.update(state="running", pid=os.getpid(), error=None, **moved)
            tracker.reopen(record.run_id)
            run_to_end(sweep, recipe, prepared, corpora, placed, tracker, progress, part_of or sweep.command("resume"))
    return sweep
