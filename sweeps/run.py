"""A sweep from recipe to front: Ray Tune runs it, the study remembers it, MLflow shows it."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

# Tune writes a JSON, a CSV and a TensorBoard log of every trial of its own accord; MLflow has it all.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import optuna
import ray
from ray import tune

from edp.spec import UserError
from sweeps.callback import SweepCallback
from sweeps.front import front_figure, pareto_front, write_front_page
from sweeps.prepare import Prepared, encode_missing, ensure_attack, locate, read_missing
from sweeps.privacy import settle
from sweeps.resources import TUNE_CPUS, Plan, plan
from sweeps.search import StudySearcher
from sweeps.settings import load_recipe
from sweeps.spec import Recipe
from sweeps.store import Sweep, SweepRecord
from sweeps.summary import parent_description, parent_metrics
from sweeps.tracking import Tracker, default_tracking_uri, environment_tags, flat
from sweeps.watch import Watch
from trainables.corpora.types import Splits
from trainables.encoding import EncodedCorpus
from trainables.spec import TrialSpec
from trainables.trial import GroupSpec, OnEpoch, TrialError, WorkerGroup, run_fresh, run_job
from trainables.worker import TrialJob, TrialResult

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class TrialContext:
    """What Tune's process of a trial needs: plain data, no tensors."""

    recipe: Recipe
    prepared: Prepared
    trials: Path
    storage: Path
    name: str
    group: GroupSpec
    mailbox: Any | None
    """Of the warm worker group; None: a `TorchTrainer` a trial."""


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
    sweep = Sweep.new(storage, name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
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
                wanted=recipe.search.trials,
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
            ensure_attack(base, prepared, sweep.folder / "shadow", run, functools.partial(watch.epoch, "shadow model"))
            if sweep.record.baseline is None:
                _run_baseline(sweep, base, prepared, run, tracker, watch)
            _run_trials(sweep, recipe, prepared, placed, mailbox, tracker, watch)
        state = "finished"
    except KeyboardInterrupt:
        state = "stopped"
        raise
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
        tags=trial_tags(sweep, spec) | {"role": "baseline"},
    )

    def on_epoch(epoch: int, metrics: dict[str, float]) -> None:
        watch.epoch("SGD baseline", epoch, metrics)
        tracker.log(run_id, metrics, epoch)

    try:
        result = run(TrialJob(spec, prepared.corpus, folder, prepared.attack), on_epoch)
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
    callback = SweepCallback(sweep, recipe, tracker, watch)
    examples = EncodedCorpus.open(prepared.corpus).size("train")
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
    )
    with watch:
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


def tune_trial(config: dict[str, Any], context: TrialContext) -> None:
    """One trial, in the process that Tune gives it. It reports epochs, and last a result or the reason for none.

    A trial that fails does not raise: Tune would print a traceback, and the reason would be lost in it.
    """
    number, params = config["number"], config["params"]

    def on_epoch(epoch: int, metrics: dict[str, float]) -> None:
        tune.report({"epoch": epoch, "epoch_metrics": metrics})

    job = TrialJob(
        context.recipe.trial(params),
        context.prepared.corpus,
        context.trials / str(config["folder"]),
        context.prepared.attack,
    )
    try:
        if context.mailbox is not None:
            result = run_job(context.mailbox, job, on_epoch)
        else:
            result = run_fresh(job, context.group, context.storage, f"{context.name}-{number}", on_epoch)
    except TrialError as error:
        tune.report({"outcome": str(error)})
    else:
        tune.report({"outcome": result})


def requeue_interrupted(study: optuna.Study) -> int:
    """Hands trials that were running when a sweep stopped back to the study; returns how many have ended.

    A stopped trial is told as failed, and its configuration is the next one that the study suggests.
    """
    ended = 0
    for trial in study.get_trials(deepcopy=False):
        if trial.state == optuna.trial.TrialState.RUNNING:
            study._storage.set_trial_user_attr(trial._trial_id, "state", "interrupted")
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
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
    if front:
        page = sweep.folder / "front.html"
        title = f"{sweep.name}: {recipe.corpus.name}, {recipe.model.kind.upper()}"
        write_front_page(front_figure(trials, front, record.baseline, recipe.search.objectives, title), page)
        tracker.artifact(record.run_id, page)
    for trial in front:
        if trial.run_id:
            tracker.tag(trial.run_id, {"pareto": "true"})
    tracker.log(record.run_id, parent_metrics(sweep, recipe, trials, front))
    tracker.tag(
        record.run_id,
        {"state": state, "mlflow.note.content": parent_description(sweep, recipe, trials, front)},
    )
    tracker.end(record.run_id, {"finished": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED"))


def trial_tags(sweep: Sweep, spec: TrialSpec) -> dict[str, str]:
    """Tags of every run that trains."""
    return {
        **environment_tags(),
        "sweep": sweep.name,
        "corpus": spec.corpus.name,
        "model": spec.model.kind,
        "method": spec.training.method,
        "state": "running",
    }


@contextmanager
def worker_group(sweep: Sweep, placed: Plan) -> Iterator[tuple[Callable[[TrialJob, OnEpoch], TrialResult], Any | None]]:
    """How jobs are run, and the warm group's mailbox where there is one."""
    storage = sweep.folder / "ray"
    if placed.mode == "fresh":

        def fresh(job: TrialJob, on_epoch: OnEpoch) -> TrialResult:
            return run_fresh(job, placed.group, storage, f"{sweep.name}-{job.output.name}", on_epoch)

        yield fresh, None
        return
    group = WorkerGroup(placed.group, storage, sweep.name)
    try:
        yield functools.partial(run_job, group.mailbox), group.mailbox
    finally:
        group.close()


@contextmanager
def ray_session(log: Path) -> Iterator[None]:
    """Connects to the cluster that RAY_ADDRESS names (`auto`: the one this machine belongs to), or starts one here.

    What Ray and Tune print goes to `log`: they print dozens of lines, also to standard output.
    """
    started = not ray.is_initialized()
    log.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("ray")
    before = logger.handlers, logger.propagate
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        logger.handlers, logger.propagate = [logging.StreamHandler(file)], False
        try:
            if started:
                # Not Ray's own default: it would join the local cluster of another sweep, and die with it.
                address = os.environ.get("RAY_ADDRESS", "local")
                ray.init(address=address, log_to_driver=False, configure_logging=False)
            yield
        finally:
            if started:
                ray.shutdown()
            logger.handlers, logger.propagate = before


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
