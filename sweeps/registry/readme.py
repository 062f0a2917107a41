"""The `README.md` of a released model: its card below the YAML head by which the Hugging Face hub sorts models."""

from __future__ import annotations

from trainables.config import BERTSpec, TrialSpec
from trainables.corpora import DOWNLOADED, PUBLIC, is_generated
from trainables.records.pareto import Metrics

_METRICS = {"intent_accuracy": ("accuracy", "intent accuracy"), "slot_f1": ("f1", "slot F1"), "ser": ("ser", "SER")}
"""The hub's id and the name of each metric of utility."""


def readme(name: str, spec: TrialSpec, metrics: Metrics, card: str) -> str:
    """Return the model card with its head.

    The license is `unknown` until the model's owner writes one. Language and data set are left out for a corpus of
    one's own, and the base model if it is a folder of this machine.
    """
    from huggingface_hub import EvalResult, ModelCardData

    from trainables.features.pretrained import hub_name  # transformers takes seconds to import

    corpus, task = spec.corpus, "token-classification" if "slot_f1" in metrics else "text-classification"
    measured = {key: about for key, about in _METRICS.items() if key in metrics}
    ours = corpus.path is None and (corpus.name in PUBLIC or is_generated(corpus))  # all of them are English
    head = ModelCardData(
        license="unknown",
        language="en" if ours else None,
        library_name="edp-sweeps",
        pipeline_tag=task,
        tags=["intent-classification", "slot-filling", "differential-privacy", spec.model.kind, spec.training.method],
        datasets=[corpus.name] if ours and corpus.name in DOWNLOADED else None,
        metrics=[one for one, _ in measured.values()],
        base_model=hub_name(spec.model.pretrained) if isinstance(spec.model, BERTSpec) else None,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type=task,
                dataset_type=corpus.name,
                dataset_name=corpus.name,
                dataset_split="test",
                metric_type=one,
                metric_name=called,
                metric_value=round(metrics[key], 6),
            )
            for key, (one, called) in measured.items()
        ],
    )
    return f"---\n{head.to_yaml()}\n---\n\n# {name}\n\n{card}\n"
