"""A sweep from recipe to front: Ray Tune runs it, the study remembers it, MLflow shows it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

# Tune writes a JSON, a CSV and a TensorBoard log of every trial of its own accord; MLflow has it all.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import optuna
from optuna.trial import TrialState
from ray import tune

from edp.spec import UserError
from sweeps.attack import attack_front
from sweeps.callback import SweepCallback
from sweeps.front import front_figure, pareto_front, write_front_page
from sweeps.prepare import Prepared, encode_missing, ensure_attack, locate, read_missing
from sweeps.privacy import settle
from sweeps.random_stopping import SecretCallback, draw_number, release_best
from sweeps.resources import TUNE_CPUS, Plan, plan
from sweeps.search import StudySearcher
from sweeps.session import ray_session, worker_group
from sweeps.settings import load_recipe
from sweeps.spec import Recipe
from sweeps.stopping import start_stopper
from sweeps.store import Sweep, SweepRecord, folder_name, study_storage
from sweeps.summary import parent_description, parent_metrics
from sweeps.tracking import Tracker, default_tracking_uri, environment_tags, flat, trial_tags
from sweeps.tune_trial import TrialContext, tune_trial
from sweeps.watch import Watch
from trainables.corpora.types import Splits
from trainables.encoding import EncodedCorpus
from trainables.spec import TrialSpec
from trainables.trial import OnEpoch, TrialError
from trainables.worker import TrialJob, TrialResult

optuna.logging.set_verbosity(optuna.logging.WARNING)


class SweepFailed(RuntimeError):
    """A sweep came to its end without a single complete trial."""


class SweepStopped(RuntimeError):
    """A sweep was interrupted; its text says how to go on."""


def start_sweep(
    recipe_name: str,
    overrides: list[str],
    *,
    name: str | None,
    storage: Path,
    tracking_uri: str | None,
    watch: Watch,
) -> Sweep:
    """Runs a new sweep to its end.

    Raises:
        UserError: before anything was made, when the recipe, the corpora or the cluster cannot do it.
        TrialError: when the shadow model or the baseline cannot be trained.
    """
    stem, recipe = load_recipe(recipe_name, overrides)
    if recipe.search.study is not None:
        study_storage(recipe.search.study)
    sweep = Sweep.new(storage, name or f"{folder_name(stem)}-{datetime.now():%Y%m%d-%H%M%S}")
    prepared = locate(recipe.baseline(), sweep.cache)
    corpora = read_missing(recipe.baseline(), prepared)
    with ray_session(sweep.log):
        placed = plan(recipe.training, recipe.resources, recipe.search)
        uri = tracking_uri or default_tracking_uri(storage)
        tracker = Tracker(uri, stem, storage / "mlflow-artifacts")
        watch.say(f"sweep {sweep.name}: {placed.line}; Ray's log: {sweep.log}")
        sweep.save_recipe(recipe)
        run_id = tracker.start(
            sweep.name,
            params=flat(recipe.model_dump(mode="json", exclude={"space", "description"})),
            tags={
                **environment_tags(),
                "role": "sweep",
                "sweep": sweep.name,
                "recipe": stem,
                "corpus": recipe.corpus.name,
                "model": recipe.model.kind,
                "method": recipe.training.method,
                "state": "running",
            },
        )
        sweep.save(
            SweepRecord(
                name=sweep.name,
                recipe=stem,
                state="running",
                tracking_uri=uri,
                run_id=run_id,
                wanted=(
                    draw_number(recipe.search.trials)
                    if recipe.search.sampler == "random_stopping"
                    else recipe.search.trials
                ),
                pid=os.getpid(),
            )
        )
        tracker.artifact(run_id, sweep.folder / "recipe.yaml")
        _run(sweep, recipe, prepared, corpora, placed, tracker, watch)
    return sweep


def resume_sweep(sweep: Sweep, watch: Watch) -> Sweep:
    """Goes on with a sweep that was stopped, whatever stopped it. Finished trials stay as they are.

    Raises:
        UserError: when the sweep is still running, or the corpora or the cluster can no longer do it.
    """
    record, recipe = sweep.record, sweep.recipe
    if record.state == "running" and record.pid != os.getpid() and _alive(record.pid):
        raise UserError(f"name = {sweep.name!r} is running (process {record.pid}); allowed: a sweep that has stopped")
    prepared = locate(recipe.baseline(), sweep.cache)
    corpora = read_missing(recipe.baseline(), prepared)
    with ray_session(sweep.log):
        placed = plan(recipe.training, recipe.resources, recipe.search)
        tracker = Tracker(record.tracking_uri, record.recipe, sweep.folder.parent / "mlflow-artifacts")
        sweep.update(state="running", pid=os.getpid(), error=None)
        tracker.tag(record.run_id, {"state": "running"})
        _run(sweep, recipe, prepared, corpora, placed, tracker, watch)
    return sweep


def _run(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    corpora: dict[Path, Splits],
    placed: Plan,
    tracker: Tracker,
    watch: Watch,
) -> None:
    state = "failed"
    try:
        base = recipe.baseline()
        watch.expect(sweep.record.wanted, 0, recipe.training.epochs)
        encode_missing(base, prepared, corpora, watch.say)
        with worker_group(sweep, placed) as (run, mailbox):
            ensure_attack(base, prepared, sweep.folder / "shadow", run, watch.epoch)
            if sweep.record.baseline is None:
                _run_baseline(sweep, base, prepared, run, tracker, watch)
            _run_trials(sweep, recipe, prepared, placed, mailbox, tracker, watch)
        state = "finished"
        if recipe.search.sampler == "random_stopping":
            sweep.update(state=state)
            release_best(sweep, recipe, tracker)
        if recipe.attacks.at_end:
            attack_front(sweep, prepared, watch)
    except KeyboardInterrupt:
        state = "stopped"
        raise SweepStopped(f"stopped; go on with: edp-sweep resume {sweep.name}") from None
    except Exception as error:
        sweep.update(error=str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise
    finally:
        finish(sweep, recipe, tracker, state)


def _run_baseline(
    sweep: Sweep,
    spec: TrialSpec,
    prepared: Prepared,
    run: Callable[[TrialJob, OnEpoch], TrialResult],
    tracker: Tracker,
    watch: Watch,
) -> None:
    """Plain SGD on the same corpus: what the front is held against. Its run stands beside the sweep's children."""
    record = sweep.record
    folder = sweep.folder / "baseline"
    run_id = tracker.start(
        f"{sweep.name} SGD baseline",
        params={"method": "sgd"} | flat(spec.training.model_dump(mode="json"), "training."),
        tags=trial_tags(sweep.name, spec) | {"role": "baseline", "privacy": "no formal guarantee (plain SGD)"},
    )

    def on_epoch(epoch: int, metrics: dict[str, float]) -> None:
        watch.epoch("SGD baseline", spec.training.epochs, epoch, metrics)
        tracker.log(run_id, metrics, epoch)

    try:
        result = run(TrialJob(spec, prepared.corpus, folder, prepared.attack, prepared.coins), on_epoch)
    except TrialError as error:
        tracker.tag(run_id, {"state": "failed", "reason": str(error)})
        tracker.end(run_id, "FAILED")
        raise
    tracker.log(run_id, result.metrics, spec.training.epochs)
    tracker.tag(run_id, result.tags | {"state": "complete"})
    tracker.artifact(run_id, folder / "model.pt", "model")
    tracker.end(run_id)
    sweep.update(baseline={"run_id": run_id, **result.metrics})
    tracker.log(record.run_id, {f"baseline_{k}": v for k, v in result.metrics.items()})


def _run_trials(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    placed: Plan,
    mailbox: Any | None,
    tracker: Tracker,
    watch: Watch,
) -> None:
    study = sweep.study(recipe)
    ended = requeue_interrupted(study)
    remaining = sweep.record.wanted - ended
    watch.expect(sweep.record.wanted, ended, recipe.training.epochs)
    if remaining <= 0:
        return
    secret = recipe.search.sampler == "random_stopping"
    callback = (SecretCallback if secret else SweepCallback)(sweep, recipe, tracker, watch)
    examples = EncodedCorpus.open(prepared.corpus).size("train")
    sweep.update(examples=examples)
    if secret:
        watch.say("a secret number of candidates runs now, unseen; the best one will be shown")
    searcher = StudySearcher(
        study,
        recipe.dimensions,
        recipe.search.objectives,
        settle=functools.partial(settle, recipe, examples=examples),
        on_suggest=callback.suggested,
        on_refused=callback.refused,
    )
    callback.searcher = searcher
    context = TrialContext(
        recipe=recipe,
        prepared=prepared,
        trials=sweep.folder / "trials",
        storage=sweep.folder / "ray",
        name=sweep.name,
        group=placed.group,
        mailbox=mailbox,
        stopper=start_stopper(recipe, sweep.folder / "trials"),
    )
    with nullcontext() if secret else watch:
        tune.Tuner(
            tune.with_resources(tune.with_parameters(tune_trial, context=context), {"cpu": TUNE_CPUS}),
            tune_config=tune.TuneConfig(
                search_alg=searcher, num_samples=remaining, max_concurrent_trials=placed.concurrency
            ),
            run_config=tune.RunConfig(
                name=f"tune-{int(time.time())}",
                storage_path=str(sweep.folder / "ray"),
                callbacks=[callback],
                verbose=0,
            ),
        ).fit()
    # Tune answers Ctrl-C by returning early, as if it were done.
    if any(trial.state == TrialState.RUNNING for trial in study.get_trials(deepcopy=False)):
        raise KeyboardInterrupt
    if searcher.gave_up is not None:
        raise SweepFailed(searcher.gave_up)
    if not any(trial.state == TrialState.COMPLETE for trial in study.get_trials(deepcopy=False)):
        reasons = [trial.user_attrs.get("reason", "") for trial in study.get_trials(deepcopy=False)]
        raise SweepFailed(f"no trial of {sweep.name} came to an end: {reasons[-1] if reasons else 'none was started'}")


def requeue_interrupted(study: optuna.Study) -> int:
    """Hands trials that were running when a sweep stopped back to the study; returns how many have ended.

    A stopped trial is told as failed, and its configuration is the next one that the study suggests.
    """
    ended = 0
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.RUNNING:
            study._storage.set_trial_user_attr(trial._trial_id, "state", "interrupted")
            study.tell(trial.number, state=TrialState.FAIL)
            kept = {"retry_of": trial.number, **trial.user_attrs}
            study.enqueue_trial(trial.params, user_attrs={k: v for k, v in kept.items() if k in ("retry_of", "run_id")})
        elif trial.state.is_finished() and trial.user_attrs.get("state") not in ("interrupted", "refused"):
            ended += 1
    return ended


def finish(sweep: Sweep, recipe: Recipe, tracker: Tracker, state: str) -> None:
    """Writes what is known of the sweep: its front, its picture, its state, here and in MLflow."""
    record, trials = sweep.record, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives)
    sweep.update(state=state)
    for trial in trials:
        if trial.state == "running" and trial.run_id:
            tracker.end(trial.run_id, "KILLED")
    if front:
        page = sweep.folder / "front.html"
        title = f"{sweep.name}: {recipe.corpus.name}, {recipe.model.kind.upper()}"
        write_front_page(front_figure(trials, front, record.baseline, recipe.search.objectives, title), page)
        tracker.artifact(record.run_id, page)
    for run in {point.run_id for point in front if point.run_id}:
        tracker.tag(run, {"pareto": "true"})
    tracker.log(record.run_id, parent_metrics(sweep, recipe, trials, front))
    tracker.tag(
        record.run_id,
        {"state": state, "mlflow.note.content": parent_description(sweep, recipe, trials, front)},
    )
    tracker.end(record.run_id, {"finished": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED"))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
