"""The trials of a sweep: Ray Tune runs them, the study remembers them."""

from __future__ import annotations

import functools
import os
import time
from contextlib import nullcontext
from typing import Any

from sweeps.search.study import open_study

# Tune writes a JSON, a CSV and a TensorBoard log of every trial of its own accord; MLflow has it all.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
# Its answer to Ctrl-C is to return as if it were done, and to leave what runs as it is.
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")

import optuna
import ray
from optuna.trial import TrialState
from ray import tune

from sweeps.execution.callback import SweepCallback
from sweeps.execution.prepare import Prepared
from sweeps.execution.resources import TUNE_CPUS, Placement
from sweeps.execution.secret import SecretCallback
from sweeps.execution.session import Workers
from sweeps.execution.tune_trial import TrialContext, tune_trial
from sweeps.progress.live_table import Progress
from sweeps.progress.prometheus import Meter
from sweeps.recipes.recipe import Recipe
from sweeps.results.cost import over_budget
from sweeps.search.early_stopping import start_stopper
from sweeps.search.searcher import StudySearcher
from sweeps.search.target_epsilon import settle
from sweeps.state.sweep import Sweep
from sweeps.tracking.backfill import Tracked
from sweeps.tracking.tracker import Tracker
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.execution.client import TrialStopped
from trainables.execution.job_queue import RETRIES, ending

optuna.logging.set_verbosity(optuna.logging.WARNING)


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
        return
    secret = recipe.search.sampler == "random_stopping"
    callback = SecretCallback(sweep, recipe, tracker) if secret else SweepCallback(sweep, recipe, tracker, progress)
    examples = EncodedCorpus.open(prepared.corpus).size("train")
    sweep.update(examples=examples)
    if not secret:
        plain = sweep.record.baseline or {}
        progress.meter = Meter(sweep.name, sweep.record.wanted, ended, plain.get("seconds_per_epoch"))
    if secret:
        progress.say("a secret number of candidates runs now, unseen; the best one will be shown")
    searcher = StudySearcher(
        study,
        recipe.dimensions,
        recipe.search.objectives,
        settle=functools.partial(settle, recipe, examples=examples),
        on_suggest=callback.suggested,
        on_refused=callback.refused,
        enough=functools.partial(over_budget, sweep, recipe),
        shapes=recipe.shapes,
    )
    reasons: list[str] = []

    def stop(reason: str) -> None:
        searcher.stopping = True
        reasons.append(reason)
        workers.stop_signal.send.remote(reason)

    callback.searcher, callback.on_stop, callback.on_whole = searcher, stop, Tracked(sweep).add
    context = TrialContext(
        recipe=recipe,
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
    with nullcontext() if secret else progress, ending(context.stopper):
        tune.Tuner(
            tune.with_resources(tune.with_parameters(tune_trial, context=context), {"cpu": TUNE_CPUS}),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=remaining,
                max_concurrent_trials=placed.concurrency,
                reuse_actors=True,  # or each trial would wait for a process to import what the last one had
            ),
            run_config=tune.RunConfig(
                name=f"tune-{int(time.time())}",
                storage_path=str(sweep.folder / "ray"),
                callbacks=[callback],
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        ).fit()
    reason = reasons[0] if reasons else ray.get(workers.stop_signal.sent.remote())
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    if reason is not None or TrialState.RUNNING in states:
        raise TrialStopped(reason or "Ray Tune ended before its trials did")
    if searcher.closed is not None:
        progress.say(searcher.closed)
    if searcher.gave_up is not None:
        raise SweepFailed(searcher.gave_up)
    if TrialState.COMPLETE not in states:
        why = [trial.user_attrs.get("reason", "") for trial in study.get_trials(deepcopy=False)]
        raise SweepFailed(f"no trial of {sweep.name} came to an end: {why[-1] if why else 'none was started'}")


def requeue_interrupted(study: optuna.Study) -> int:
    """Hands trials that were running when a sweep stopped back to the study; returns how many have ended.

    A stopped trial is told as failed, and its configuration is the next one that the study suggests.
    """
    trials = study.get_trials(deepcopy=False)
    waiting = {trial.user_attrs.get("retry_of") for trial in trials if trial.state == TrialState.WAITING}
    ended = 0
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            first = trial.user_attrs.get("retry_of", trial.number)
            # Enqueued first: whoever dies between the two finds the trial running, and its successor waiting.
            if first not in waiting:
                kept: dict[str, Any] = {k: v for k, v in trial.user_attrs.items() if k == "run_id"}
                study.enqueue_trial(trial.params, user_attrs={**kept, "retry_of": first})
            study._storage.set_trial_user_attr(trial._trial_id, "state", "interrupted")
            study.tell(trial.number, state=TrialState.FAIL)
        elif trial.state.is_finished() and trial.user_attrs.get("state") not in ("interrupted", "refused"):
            ended += 1
    return ended
