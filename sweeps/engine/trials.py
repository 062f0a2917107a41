"""The trials of a sweep, which Ray Tune runs and the driver owns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

# By default Tune writes a JSON, a CSV and a TensorBoard log of every trial. MLflow holds the same data.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
# On Ctrl-C Tune would return as if all trials had ended, and leave the running ones alive.
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
# Seconds between Tune's snapshots of all trials, which nothing reads: the study is the truth.
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")

import optuna
from optuna.trial import TrialState
from ray import tune

from sweeps.engine.driver import Driver
from sweeps.engine.early_stopping import Stopper, curves_in
from sweeps.engine.opening import Opening
from sweeps.engine.placement import TUNE_CPUS, Placement
from sweeps.engine.prometheus import Meter
from sweeps.engine.session import Workers
from sweeps.engine.study import COST, open_study, requeue_interrupted
from sweeps.engine.trial import TrialContext, tune_trial
from sweeps.engine.watch import watched
from sweeps.store.plans import plan_of
from sweeps.store.records import REPEATED
from sweeps.store.sweep import Sweep
from sweeps.text.figures import delta_remark, epsilon_digits
from sweeps.tracking.tracker import Tracker
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.records.job import TrialError, TrialJob, TrialStopped
from trainables.workers.job_queue import RETRIES


class SweepFailed(TrialError):
    """A sweep that ended without a complete trial."""


def run_trials(sweep: Sweep, opened: Opening, placed: Placement, workers: Workers, tracker: Tracker) -> None:
    """Run the trials that the sweep still lacks.

    Raises:
        TrialStopped: if trials were stopped before their end. In the study they are still running.
        SweepFailed: if no trial is complete, or too many failed in a row.
    """
    recipe, prepared, progress = sweep.recipe, opened.prepared, opened.progress
    study = open_study(sweep, recipe)
    ended = requeue_interrupted(study)
    wanted = sweep.record.wanted
    progress.expect(wanted, ended, recipe.training.epochs)
    if wanted <= ended:
        _check_complete(study, sweep)
        return
    corpus = EncodedCorpus.open(prepared.corpus)
    sweep.update(examples=corpus.size("train"))
    if remark := delta_remark(recipe.edp.delta, recipe.edp.unit, corpus.size("train")):
        progress.say(remark)
    meter = Meter(sweep.name, wanted, ended, (sweep.record.baseline or {}).get("seconds_per_epoch"))
    search, training, stopper = recipe.search, recipe.training, None
    if search.stop is not None:
        earlier = curves_in(sweep.folder / "trials", search.objectives)
        stopper = Stopper(search.stop, training.epochs, training.validate_every, earlier)
    units = corpus.units(recipe.edp.unit)
    # Secret noise gives trainings other figures each time, so their search cannot repeat. Where it can, trials of
    # unequal length would idle the cluster if each waited for all but those that run (`tests/benchmarks/ordered.py`).
    lag = None if recipe.edp.reproducible_noise is None else 2 * placed.concurrency - 1
    driver = Driver(sweep, study, prepared, units, workers, tracker, progress, stopper=stopper, lag=lag, meter=meter)
    job = TrialJob(
        opened.spec,
        prepared.corpus,
        sweep.folder / "trials",
        prepared.attack,
        prepared.coins,
        public=plan_of(sweep) is not None,
        gpus_per_worker=placed.group.gpus_per_worker or 1.0,
        keep=recipe.search.keep_epochs,
        objectives=recipe.search.objectives,
    )
    context = TrialContext(job, sweep.folder / "ray", sweep.name, placed.group, workers.leases)
    with progress, watched(meter.refresh, "sweep-metrics"):
        _tuner(sweep, context, driver, wanted - ended, placed.concurrency).fit()
    reason = driver.stopped or workers.stop_signal.reason
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    if reason is not None or TrialState.RUNNING in states:
        raise TrialStopped(reason or "Ray Tune ended before its trials did")
    if driver.budget_spent is not None:
        progress.say(driver.budget_spent)
    if driver.exhausted:
        progress.say("all configurations of the space have run")
    if driver.gave_up is not None:
        raise SweepFailed(driver.gave_up)
    _check_complete(study, sweep)


def _tuner(sweep: Sweep, context: TrialContext, driver: Driver, trials: int, concurrency: int) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(tune_trial, context=context), {"cpu": TUNE_CPUS}),
        tune_config=tune.TuneConfig(
            search_alg=driver,
            num_samples=trials,
            max_concurrent_trials=concurrency,
            reuse_actors=True,  # otherwise each trial waits for a new process and its imports
        ),
        run_config=tune.RunConfig(
            name=f"tune-{int(time.time())}",
            storage_path=str(sweep.folder / "ray"),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[Housekeeping(driver.send_due)],
            verbose=0,
        ),
    )


def _check_complete(study: optuna.Study, sweep: Sweep) -> None:
    """Raise SweepFailed if the study has no complete trial."""
    trials = [one for one in study.get_trials(deepcopy=False) if one.user_attrs.get("state") != REPEATED]
    if any(trial.state == TrialState.COMPLETE for trial in trials):
        return
    costs = [trial.user_attrs[COST] for trial in trials if COST in trial.user_attrs]
    if not trials:
        why = "none was started"
    elif len(costs) == len(trials):
        why = (
            f"the cheapest of {len(costs)} would have an epsilon of {epsilon_digits(min(costs), 4)}, and "
            f"epsilon_budget = {sweep.recipe.epsilon_budget:g}; allowed: a larger one, or edp.epsilon, which sets the "
            "noise"
        )
    else:
        why = trials[-1].user_attrs.get("reason", "")
    raise SweepFailed(f"no trial of {sweep.name} came to an end: {why}")


_NEEDED = {"training_iteration", "node_ip"}


class Housekeeping(tune.Callback):
    """Sends what is due to MLflow, and empties what Tune keeps of a trial until the search ends.

    Tune keeps the configuration, the last result, and statistics of every number in it: 45 KiB a trial.

    Args:
        send_due: called after each step of Tune; sends the figures that have waited.
    """

    def __init__(self, send_due: Callable[[], None]) -> None:
        self._send_due = send_due

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Send the figures of running trials that have waited."""
        self._send_due()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Empty a result that the driver has read, before Tune keeps it."""
        for name in result.keys() - _NEEDED:
            del result[name]

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Empty the configuration of a trial that has ended: no process will ask for it."""
        trial.config.clear()
        trial.evaluated_params.clear()
