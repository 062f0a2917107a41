"""The trials of a sweep: Ray Tune runs them, the study remembers them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext

from sweeps.run.study import open_study, requeue_interrupted

# Tune writes a JSON, a CSV and a TensorBoard log of every trial of its own accord; MLflow has it all.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
# On Ctrl-C Tune would return as if all trials had ended, and leave the running ones alive.
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")

import optuna
import ray
from optuna.trial import TrialState
from ray import tune

from sweeps.formatting.guarantee import delta_remark
from sweeps.recipes.recipe import Recipe
from sweeps.run.driver import TrialLife
from sweeps.run.early_stopping import start_stopper
from sweeps.run.prepare import Prepared
from sweeps.run.progress import Progress
from sweeps.run.prometheus import Meter
from sweeps.run.resources import TUNE_CPUS, Placement
from sweeps.run.searcher import StudySearcher
from sweeps.run.secret_trials import SecretTrials
from sweeps.run.session import Workers
from sweeps.run.sharing import at_once
from sweeps.run.study_trials import COST
from sweeps.run.trial import TrialContext, tune_trial
from sweeps.state.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.execution.job_queue import RETRIES, ending
from trainables.records.job import TrialStopped


class SweepFailed(RuntimeError):
    """A sweep came to its end without a single complete trial."""


def run_trials(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    placed: Placement,
    workers: Workers,
    tracker: Tracker,
    progress: Progress,
) -> None:
    """Runs what is missing of the sweep's trials.

    Raises:
        TrialStopped: when trials were stopped before their end; the study holds them as running.
        SweepFailed: when no trial came to an end.
    """
    study = open_study(sweep, recipe)
    ended = requeue_interrupted(study)
    remaining = sweep.record.wanted - ended
    progress.expect(sweep.record.wanted, ended, recipe.training.epochs)
    if remaining <= 0:
        _check_complete(study, sweep)
        return
    corpus = EncodedCorpus.open(prepared.corpus)
    units = corpus.units(recipe.edp.unit)
    sweep.update(examples=corpus.size("train"))
    if remark := delta_remark(recipe.edp.delta, recipe.edp.unit, corpus.size("train")):
        progress.say(remark)
    if recipe.search.secret:
        progress.say("a secret number of candidates runs now, unseen; the best one will be shown")
        life: TrialLife = SecretTrials(sweep, recipe, study, units, tracker, workers.stop_signal)
    else:
        plain = sweep.record.baseline or {}
        progress.meter = Meter(sweep.name, sweep.record.wanted, ended, plain.get("seconds_per_epoch"))
        life = TrialLife(sweep, recipe, study, units, tracker, progress, workers.stop_signal)
    context = _context(sweep, recipe, prepared, placed, workers)
    most = at_once(placed, recipe.resources, progress.say)
    with nullcontext() if recipe.search.secret else progress, ending(context.stopper):
        _tuner(sweep, context, life, most, remaining, placed.concurrency).fit()
    reason = life.stopped or ray.get(workers.stop_signal.sent.remote())
    _check_end(study, life, reason, sweep, progress)


def _context(sweep: Sweep, recipe: Recipe, prepared: Prepared, placed: Placement, workers: Workers) -> TrialContext:
    """What every trial is told."""
    return TrialContext(
        search=recipe.search,
        corpus=prepared.corpus,
        attack=prepared.attack,
        coins=prepared.coins,
        trials=sweep.folder / "trials",
        storage=sweep.folder / "ray",
        name=sweep.name,
        group=placed.group,
        queue=workers.queue,
        stop_signal=workers.stop_signal,
        stopper=start_stopper(recipe, sweep.folder / "trials"),
    )


def _tuner(
    sweep: Sweep, context: TrialContext, life: TrialLife, most: Callable[[], int], trials: int, concurrency: int
) -> tune.Tuner:
    """Asks `life` for trials, as many at once as fit (`most`), and tells it what happens to them."""
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(tune_trial, context=context), {"cpu": TUNE_CPUS}),
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(life.ask, lambda: life.running < most()),
            num_samples=trials,
            max_concurrent_trials=concurrency,
            reuse_actors=True,  # or each trial would wait for a process to import what the last one had
        ),
        run_config=tune.RunConfig(
            name=f"tune-{int(time.time())}",
            storage_path=str(sweep.folder / "ray"),
            callbacks=[life],
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            verbose=0,
        ),
    )


def _check_end(study: optuna.Study, life: TrialLife, reason: str | None, sweep: Sweep, progress: Progress) -> None:
    """Raises what `run_trials` does, where the trials did not end as they should."""
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    if reason is not None or TrialState.RUNNING in states:
        raise TrialStopped(reason or "Ray Tune ended before its trials did")
    if life.trials.closed is not None:
        progress.say(life.trials.closed)
    if life.trials.gave_up is not None:
        raise SweepFailed(life.trials.gave_up)
    _check_complete(study, sweep)


def _check_complete(study: optuna.Study, sweep: Sweep) -> None:
    """Refuses a study without a complete trial; also one that failed before, and of which nothing is left to run."""
    trials = study.get_trials(deepcopy=False)
    if TrialState.COMPLETE not in [trial.state for trial in trials]:
        why = [trial.user_attrs.get("reason", "") for trial in trials] or ["none was started"]
        costs = [trial.user_attrs[COST] for trial in trials if COST in trial.user_attrs]
        if len(costs) == len(trials) > 0:
            why = [
                f"the cheapest of {len(costs)} would have an epsilon of {min(costs):.4g}, and epsilon_budget = "
                f"{sweep.recipe.epsilon_budget:g}; allowed: a larger one, or edp.epsilon, for which z0 is solved"
            ]
        raise SweepFailed(f"no trial of {sweep.name} came to an end: {why[-1]}")
