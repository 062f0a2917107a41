"""The trainings of a sweep: its baseline, and its trials, which Ray Tune runs and the driver owns."""

from __future__ import annotations

import os
import time

# By default Tune writes a JSON, a CSV and a TensorBoard log of every trial. MLflow holds the same data.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
# On Ctrl-C Tune would return as if all trials had ended, and leave the running ones alive.
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
# Seconds between Tune's snapshots of all trials, which nothing reads: the study is the truth.
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")

import optuna
import ray
from optuna.trial import TrialState
from ray import tune

from sweeps.config.recipe import Recipe
from sweeps.engine.driver import Driver
from sweeps.engine.early_stopping import start_stopper
from sweeps.engine.prepare import RunJob, blamed_on
from sweeps.engine.progress import Progress
from sweeps.engine.prometheus import Meter
from sweeps.engine.recorder import Recorder
from sweeps.engine.resources import TUNE_CPUS, Placement
from sweeps.engine.session import Workers
from sweeps.engine.study import COST, open_study, requeue_interrupted
from sweeps.engine.trial import TrialContext, tune_trial
from sweeps.engine.tune_callback import Housekeeping
from sweeps.store.plans import plan_of
from sweeps.store.prepared import Prepared
from sweeps.store.records import REPEATED
from sweeps.store.sweep import Sweep
from sweeps.text.figures import delta_remark, epsilon_digits
from sweeps.tracking.job_run import corpus_inputs, open_baseline_run
from sweeps.tracking.tracker import Figures, Tracker
from trainables.config import TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.records.job import TrialError, TrialJob, TrialStopped
from trainables.records.pareto import Metrics
from trainables.workers.job_queue import RETRIES, ending


class SweepFailed(TrialError):
    """A sweep that ended without a complete trial."""


def run_baseline(
    sweep: Sweep, spec: TrialSpec, prepared: Prepared, run: RunJob, tracker: Tracker, progress: Progress
) -> None:
    """Train plain SGD on the sweep's corpus, or continue it, and keep its metrics in the sweep's record.

    The front is compared with it. Its MLflow run is a child of the sweep's run.

    Raises:
        TrialError: if the training fails.
    """
    folder = sweep.folder / "baseline"

    def on_epoch(epoch: int, metrics: Metrics) -> None:
        progress.epoch("SGD baseline", spec.training.epochs, epoch, metrics)
        tracked.epoch(epoch, metrics)

    Recorder(sweep.folder, spec, progress.say).begin("baseline", spec, part="baseline")
    inputs = corpus_inputs(spec, prepared.corpus, prepared.shadow, sweep)
    with open_baseline_run(sweep, spec, tracker, inputs) as tracked:
        sweep.update(baseline_run_id=tracked.run_id)
        with blamed_on("SGD baseline"):
            result = run(TrialJob(spec, prepared.corpus, folder, prepared.attack, prepared.coins), on_epoch)
        tracked.close(spec, folder, result)
    sweep.update(baseline={"run_id": tracked.run_id, **result.metrics}, baseline_tracked=tracked.whole)
    tracker.log(sweep.record.run_id, Figures({f"baseline_{k}": v for k, v in result.metrics.items()}))


def run_trials(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    placed: Placement,
    workers: Workers,
    tracker: Tracker,
    progress: Progress,
) -> None:
    """Run the trials that the sweep still lacks.

    Raises:
        TrialStopped: if trials were stopped before their end. In the study they are still running.
        SweepFailed: if no trial is complete, or too many failed in a row.
    """
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
    driver = Driver(
        sweep,
        recipe,
        study,
        prepared,
        corpus.units(recipe.edp.unit),
        workers.stop_signal,
        tracker=tracker,
        progress=progress,
        meter=meter,
        max_running=workers.at_once,
    )
    context = TrialContext(
        search=recipe.search,
        corpus=prepared.corpus,
        attack=prepared.attack,
        coins=prepared.coins,
        trials=sweep.folder / "trials",
        storage=sweep.folder / "ray",
        name=sweep.name,
        group=placed.group,
        leases=workers.leases,
        stop_signal=workers.stop_signal,
        public=plan_of(sweep) is not None,
        stopper=start_stopper(recipe, sweep.folder / "trials"),
    )
    with progress, meter, ending(context.stopper):
        _tuner(sweep, context, driver, wanted - ended, placed.concurrency).fit()
    reason = driver.stopped or ray.get(workers.stop_signal.sent.remote())
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
