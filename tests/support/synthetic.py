"""A finished sweep whose figures are drawn from a formula: the study and the MLflow runs are made by the project's own
code, only the training is left out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from edp.accounting.tradeoff import Gaussian
from edp.ledger import Ledger
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.target_epsilon import planned
from sweeps.engine.finish import finish
from sweeps.engine.progress import Progress
from sweeps.engine.recorder import Recorder
from sweeps.store.records import SweepRecord
from sweeps.store.storage import default_tracking_uri
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import digests_of
from sweeps.tracking.run_tags import flat
from sweeps.tracking.tracker import Tracker
from tests.support.studies import driver
from trainables.records.epochs import epoch_folder, write_curve, write_ledger
from trainables.records.job import EpochResult, TrialResult

EXAMPLES = 1350
Figures = Callable[[Recipe, dict[str, Any], np.random.Generator], tuple[dict[str, float], Ledger]]
"""Metrics and ledger of a trial, from its settings."""


def figures(recipe: Recipe, params: dict[str, Any], rng: np.random.Generator) -> tuple[dict[str, float], Ledger]:
    """Metrics that lean the way real ones do: more noise is worse in SER, better in MIA AUC and ε."""
    spec = recipe.trial(params)
    ledger = planned(spec, EXAMPLES)
    noise = np.log10(params["z0"]) / 6 + 1
    ser = float(np.clip(0.2 + 0.8 * noise**4 + rng.normal(0, 0.03), 0.05, 1.1))
    auc = float(np.clip(0.56 - 0.05 * noise + rng.normal(0, 0.006), 0.48, 0.7))
    test = ser + 0.05 * float(np.sin(1000 * ser))  # chooses another trial than the validation SER does
    return {
        "valid_ser": ser,
        "valid_ser_lower": ser - 0.02,
        "valid_ser_upper": ser + 0.02,
        "ser": test,
        "ser_lower": test - 0.02,
        "ser_upper": test + 0.02,
        "intent_accuracy": 1 - ser / 2,
        "slot_f1": 1 - ser / 2,
        "valid_mia_auc": auc,
        "valid_mia_auc_lower": auc - 0.02,
        "valid_mia_auc_upper": auc + 0.02,
        "valid_mia_tpr_at_1pct_fpr": 0.012,
        "valid_mia_realised_1pct_fpr": 0.009,
        "mia_auc": auc - 0.01,
        "mia_auc_lower": auc - 0.03,
        "mia_auc_upper": auc + 0.01,
        "mia_tpr_at_1pct_fpr": 0.013,
        "mia_realised_1pct_fpr": 0.008,
        "gaussian_mu": 1 / params["z0"],
        "permitted_tpr_at_1pct_fpr": Gaussian(1 / params["z0"]).max_tpr(0.01),
        "permitted_tpr_at_01pct_fpr": Gaussian(1 / params["z0"]).max_tpr(0.001),
        "epsilon": 8 / params["z0"] ** 1.8,
        "epsilon_paper": 2 / params["z0"] ** 1.8,
        "delta": spec.edp.delta,
        "seconds_per_epoch": 2.0,
        "gpu_seconds": float(rng.uniform(50, 400)),
        "worker_seconds": 80.0,
        "trial_seconds": 80.0,
    }, ledger


def sweep_of(
    storage: Path,
    name: str,
    trials: int,
    *settings: str,
    tracked: bool = True,
    state: str | None = "finished",
    tracking_uri: str | None = None,
    of: str = "quickstart_paper",
    measure: Figures = figures,
) -> Sweep:
    """A sweep of `trials` complete trials in `storage`.

    Args:
        settings: `KEY=VALUE` of its recipe.
        tracked: whether MLflow has runs of it; its front is only written there then.
        state: at its end; None: its driver has died before it wrote the end.
        tracking_uri: of MLflow's store; None: the storage folder's own.
        of: its recipe.
        measure: the trials' figures.
    """
    own = [f"search.trials={max(trials, 1)}", "search.sampler=random", *settings]
    stem, recipe = load_recipe(of, own)
    sweep = Sweep.new(storage, name)
    uri = tracking_uri or default_tracking_uri(storage)
    tracker = Tracker(uri, stem, storage / "mlflow-artifacts") if tracked else None
    sweep.save_recipe(recipe)
    run_id = ""
    if tracker:
        run_id = tracker.start(
            name, params=flat(recipe.model_dump(mode="json", exclude={"space"})), tags={"role": "sweep"}
        )
    baseline = {
        "valid_ser": 0.2,
        "valid_mia_auc": 0.56,
        "ser": 0.21,
        "mia_auc": 0.57,
        "epsilon": float("inf"),
        "epsilon_paper": float("inf"),
    }
    sweep.save(
        SweepRecord(
            name=name,
            recipe=stem,
            state="running",
            tracking_uri=uri,
            run_id=run_id,
            wanted=trials,
            pid=os.getpid(),
            baseline=baseline,
            end_due=True,
            settings=digests_of(recipe),
        )
    )
    Recorder(sweep.folder, recipe.baseline(), print).begin("baseline", recipe.baseline(), part="baseline")
    if trials:
        add_trials(sweep, trials, tracker, measure)
        sweep.update(examples=EXAMPLES)
    if state is None:
        return sweep
    if tracker:
        finish(sweep, recipe, tracker, state, Progress(Console(quiet=True)))
    else:
        sweep.update(state=state, end_due=False)
    return sweep


def add_trials(sweep: Sweep, trials: int, tracker: Tracker | None = None, measure: Figures = figures) -> None:
    """So many more trials, each with the curve of its epochs, and a folder as a trial leaves it, but for its models."""
    recipe, rng = sweep.recipe, np.random.default_rng(len(sweep.trials()))
    owner = driver(sweep, recipe, tracker=tracker, units=EXAMPLES)
    for i in range(trials):
        suggestion = owner.suggest(str(i))["suggestion"]
        metrics, ledger = measure(recipe, suggestion.params, rng)
        last = recipe.training.epochs
        curve = [{"valid_ser": metrics["valid_ser"] + 0.3 / e, "train_loss": 10.0 / e} for e in range(1, last + 1)]
        # Half as long: a worse model for a smaller ε.
        half = metrics | {k: value + 0.05 for k, value in metrics.items() if "ser" in k.split("_")}
        half["epsilon"] /= 2
        kept = (EpochResult(last // 2, half), EpochResult(last, metrics))
        outcome = TrialResult(metrics=metrics, tags={}, ledger=ledger, epochs=kept)
        folder = sweep.trial_folder(suggestion.number)
        write_ledger(ledger, folder)
        write_curve(curve, folder)
        write_ledger(ledger.until(last // 2), epoch_folder(folder, last // 2))
        epochs = [("epoch", one) for one in enumerate(curve, start=1)]
        for message in (("started", None), *epochs, ("outcome", outcome)):
            owner.on_trial_result(str(i), {"message": [message]})
        owner.on_trial_complete(str(i))
