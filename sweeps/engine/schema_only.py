"""The schema alone: heads that learnt from its text and nothing private, measured as a trial is."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sweeps.store.prepared import Prepared
from sweeps.store.sweep import Sweep
from sweeps.tracking.tracker import Figures, Tracker
from trainables.config import BERTSpec, TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.records.job import TrialJob
from trainables.records.pareto import Metrics


def has_text(prepared: Prepared) -> bool:
    """Return True if the encoded private corpus comes with public text."""
    return EncodedCorpus.open(prepared.corpus).size("schema") > 0


def keep_schema_only(sweep: Sweep, spec: TrialSpec, prepared: Prepared, tracker: Tracker) -> None:
    """Measure the schema alone, and keep its figures in the sweep's record and its MLflow run."""
    metrics = measure_schema_only(spec, prepared)
    sweep.update(schema_only=metrics)
    tracker.log(sweep.record.run_id, Figures({f"schema_only_{name}": value for name, value in metrics.items()}))


def measure_schema_only(spec: TrialSpec, prepared: Prepared) -> Metrics:
    """Return the figures of heads at the public weights of `spec`, on the private corpus; ε is 0.

    Takes some seconds, in this process. The corpora of `prepared` are encoded, with text.
    """
    from trainables.measure.measuring import final_metrics, valid_metrics  # PyTorch takes seconds to import
    from trainables.training.process import alone, new_model, pick_device

    assert isinstance(spec.model, BERTSpec), "a corpus has text only for heads"
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"schema_weight": 1.0})})
    corpus = EncodedCorpus.open(prepared.corpus).for_model(spec.model)
    with tempfile.TemporaryDirectory() as scratch, alone():
        device = pick_device(spec.training)
        model = new_model(spec, corpus, device).eval()
        attack = prepared.attack if prepared.attack.is_file() else None
        job = TrialJob(spec, prepared.corpus, Path(scratch), attack)
        found = valid_metrics(model, corpus, job, device, None)
        found |= final_metrics(model, corpus, job, device, None) or {}
    return found | {"epsilon": 0.0, "epsilon_paper": 0.0, "delta": spec.edp.delta}
