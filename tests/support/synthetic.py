"""A finished sweep whose figures are drawn from a formula: the study and the MLflow runs are made by the project's own
code, only the training is left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from edp.ledger import Ledger
from sweeps.commands.finish import finish
from sweeps.progress.live_table import Progress
from sweeps.recipes.loading import load_recipe
from sweeps.recipes.recipe import Recipe
from sweeps.search.study import open_study
from sweeps.search.study_trials import StudyTrials
from sweeps.search.target_epsilon import Settled, planned
from sweeps.state.records import SweepRecord
from sweeps.state.sweep import Sweep
from sweeps.tracking.tracker import Tracker, default_tracking_uri, flat
from sweeps.tracking.trial_runs import close_trial_run, open_trial_run
from trainables.records.job import EpochResult, TrialResult

EXAMPLES = 1350


def figures(recipe: Recipe, params: dict[str, Any], rng: np.random.Generator) -> tuple[dict[str, float], Ledger]:
    """Metrics that lean the way real ones do: more noise is worse in SER, better in MIA AUC and ε."""
    spec = recipe.trial(params)
    ledger = planned(spec, EXAMPLES)
    noise = np.log10(params["z0"]) / 6 + 1
    ser = float(np.clip(0.2 + 0.8 * noise**4 + rng.normal(0, 0.03), 0.05, 1.1))
    auc = float(np.clip(0.56 - 0.05 * noise + rng.normal(0, 0.006), 0.48, 0.7))
    return {
        "ser": ser,
        "ser_lower": ser - 0.02,
        "ser_upper": ser + 0.02,
        "intent_accuracy": 1 - ser / 2,
        "slot_f1": 1 - ser / 2,
        "mia_auc": auc,
        "mia_auc_lower": auc - 0.02,
        "mia_auc_upper": auc + 0.02,
        "mia_tpr_at_1pct_fpr": 0.012,
        "epsilon": 8 / params["z0"] ** 1.8,
        "epsilon_paper": 2 / params["z0"] ** 1.8,
        "delta": spec.edp.delta,
        "seconds_per_epoch": 2.0,
        "gpu_seconds": float(rng.uniform(50, 400)),
        "worker_seconds": 80.0,
    }, ledger


def sweep_of(storage: Path, name: str, trials: int, *, tracked: bool = True, state: str = "finished") -> Sweep:
    """A sweep of `trials` complete trials in `storage`.

    Args:
        tracked: whether MLflow has runs of it; its front is only written there then.
    """
    stem, recipe = load_recipe("quickstart_paper", [f"search.trials={max(trials, 1)}", "search.sampler=random"])
    sweep = Sweep.new(storage, name)
    uri = default_tracking_uri(storage)
    tracker = Tracker(uri, stem, storage / "mlflow-artifacts") if tracked else None
    sweep.save_recipe(recipe)
    run_id = ""
    if tracker:
        run_id = tracker.start(
            name, params=flat(recipe.model_dump(mode="json", exclude={"space"})), tags={"role": "sweep"}
        )
    baseline = {"ser": 0.21, "mia_auc": 0.57, "epsilon": float("inf"), "epsilon_paper": float("inf")}
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
            examples=EXAMPLES,
        )
    )
    add_trials(sweep, trials, tracker)
    if tracker:
        finish(sweep, recipe, tracker, state, Progress(Console(quiet=True)))
    else:
        sweep.update(state=state)
    return sweep


def add_trials(sweep: Sweep, trials: int, tracker: Tracker | None = None) -> None:
    """So many more trials, each with the curve of its epochs."""
    recipe, rng = sweep.recipe, np.random.default_rng(len(sweep.trials()))
    study = open_study(sweep, recipe)
    asked = StudyTrials(study, recipe, lambda params: Settled(params, recipe.trial(params)))
    for i in range(trials):
        suggestion = asked.ask(str(i))
        assert suggestion is not None
        metrics, ledger = figures(recipe, suggestion.params, rng)
        last = recipe.training.epochs
        curve = [
            {"epoch": float(e), "valid_ser": metrics["ser"] + 0.3 / e, "train_loss": 10.0 / e}
            for e in range(1, last + 1)
        ]
        # Half as long: a worse model for a smaller ε.
        half = metrics | {k: metrics[k] + 0.05 for k in ("ser", "ser_lower", "ser_upper")}
        half["epsilon"] /= 2
        kept = (EpochResult(last // 2, half), EpochResult(last, metrics))
        outcome = TrialResult(metrics=metrics, tags={}, ledger=ledger, epochs=kept)
        if tracker:
            run_id = open_trial_run(tracker, sweep, suggestion.number, suggestion.params, suggestion.spec)
            asked.trial(str(i)).set_user_attr("run_id", run_id)
            for epoch in curve:
                tracker.log(run_id, {k: v for k, v in epoch.items() if k != "epoch"}, int(epoch["epoch"]))
        state = asked.tell(str(i), outcome, ledger, curve)
        if tracker:
            folder = sweep.trial_folder(suggestion.number)
            close_trial_run(tracker, run_id, suggestion.spec, folder, outcome, state)
