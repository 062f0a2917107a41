"""One trial: corpora, encoding, models, SER, attacks, and the worker loop that trains and measures a configuration.

Must not import MLflow, Optuna or the sweeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edp.lazy import lazy_exports

__all__ = [
    "BERTSpec",
    "CLCSpec",
    "CanariesSpec",
    "CorpusSpec",
    "EpochResult",
    "GroupSpec",
    "JointModel",
    "ShadowSpec",
    "Splits",
    "TrainingSpec",
    "TrialError",
    "TrialJob",
    "TrialResult",
    "TrialSpec",
    "TrialStopped",
    "Utterance",
    "WorkerGroup",
    "attack_metrics",
    "attack_scores",
    "build_model",
    "check_corpus",
    "fit_attack",
    "generate",
    "load_corpus",
    "read_corpus",
    "run_fresh",
    "run_job",
    "run_trial",
    "semantic_error_rate",
    "semantic_errors",
    "slot_f1",
]

if TYPE_CHECKING:
    from trainables.config import BERTSpec, CanariesSpec, CLCSpec, CorpusSpec, ShadowSpec, TrainingSpec, TrialSpec
    from trainables.corpora import Splits, Utterance, check_corpus, generate, load_corpus, read_corpus
    from trainables.measure.attacks.shadow import attack_metrics, attack_scores, fit_attack
    from trainables.measure.ser import semantic_error_rate, semantic_errors, slot_f1
    from trainables.models import JointModel, build_model
    from trainables.records.job import EpochResult, TrialError, TrialJob, TrialResult, TrialStopped
    from trainables.workers.client import GroupSpec, run_job
    from trainables.workers.worker import run_trial
    from trainables.workers.worker_group import WorkerGroup, run_fresh
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trainables.measure.attacks.shadow": ("attack_metrics", "attack_scores", "fit_attack"),
            "trainables.corpora": ("Splits", "Utterance", "check_corpus", "generate", "load_corpus", "read_corpus"),
            "trainables.measure.ser": ("semantic_error_rate", "semantic_errors", "slot_f1"),
            "trainables.workers.client": ("GroupSpec", "run_job"),
            "trainables.workers.worker": ("run_trial",),
            "trainables.workers.worker_group": ("WorkerGroup", "run_fresh"),
            "trainables.models": ("JointModel", "build_model"),
            "trainables.records.job": ("EpochResult", "TrialError", "TrialJob", "TrialResult", "TrialStopped"),
            "trainables.config": (
                "BERTSpec",
                "CLCSpec",
                "CanariesSpec",
                "CorpusSpec",
                "ShadowSpec",
                "TrainingSpec",
                "TrialSpec",
            ),
        },
    )
