"""The card of a registered model, in Markdown, and its README, by whose head the Hugging Face hub sorts models."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweeps.config.choice import GIVEN
from sweeps.store.picks import Pick
from sweeps.text.columns import TPR
from sweeps.text.figures import (
    FIGURES,
    delta_remark,
    epsilon_digits,
    epsilon_text,
    noise_read_words,
    privacy_statement,
    utility_words,
)
from sweeps.tracking.job_run import PLAIN
from trainables.config import BERTSpec, TrialSpec
from trainables.corpora import DOWNLOADED, PUBLIC, is_generated
from trainables.records.pareto import Metrics


def model_card(
    spec: TrialSpec,
    metrics: Metrics,
    parts: Mapping[str, str],
    cost: float | None,
    picked: Pick | None,
    trained_on: str,
    examples: int | None,
    choice: str = GIVEN,
) -> str:
    """Return the card's text in Markdown.

    Args:
        parts: private and public parts of the model in words; {} if it has one part only.
        cost: ε of the sweep that chose the configuration; NaN if unknown, None without a sweep.
        picked: the choice of the configuration; None if it comes from no sweep.
        trained_on: names of the splits.
        examples: utterances of these splits; None if unknown.
        choice: what chose the configuration, and whether ε covers that (`sweeps.config.choice`).
    """
    corpus, training, edp = spec.corpus, spec.training, spec.edp
    private = training.method != "sgd"
    made = " (synthetic: sentences from a grammar, no person's words)" if is_generated(corpus) else ""
    privacy = privacy_statement(metrics, edp, corpus) if private else PLAIN
    auc, tpr = (FIGURES[name].cell(metrics) for name in ("mia_auc", TPR))
    leaks = f"an attack tells members from others with an AUC of {auc} (0.5 is guessing)"
    ends = FIGURES["ser"].ends(metrics, " to ")
    interval = f" (SER's 95 % interval {ends})" if ends else ""
    lines = [
        f"{spec.model.kind.upper()} that understands utterances like those of {corpus.name}: in their language, with "
        "their intents and slots.",
        "",
        f"- Trained on {trained_on} of {corpus.name}{made}, seed {corpus.seed}: {training.method}, "
        f"{training.epochs} epochs.",
        f"- Useful: {utility_words(metrics)}{interval}, on test utterances that it has not seen.",
        *([f"- Leaks: {leaks}{tpr and f', TPR {tpr}'}."] if "mia_auc" in metrics else []),
        f"- Privacy: {privacy}; the configuration was {choice}.",
    ]
    if private:
        lines.append(
            f"- Protected: unit {edp.unit}, neighbours {NEIGHBOURS[edp.sampling]}, {edp.sampling} sampling, the "
            "aggregator is trusted. A person who contributed several units is protected less."
        )
        if read := noise_read_words(metrics):
            lines.append(f"- Audited by itself: {read}.")
        if (remark := delta_remark(edp.delta, edp.unit, examples)) is not None:
            lines.append(f"- Warning: {remark}.")
    if cost is not None:
        known = "unknown: a ledger is missing" if math.isnan(cost) else epsilon_text(cost)
        lines.append(f"- Other trainings of its sweep: the weights of all of them together have an ε of {known}.")
    if picked is not None:
        lines.append(f"- Picked by {picked.by}, {picked.at}. {picked.why}")
    lines += [f"- {name.capitalize()}: {text}." for name, text in parts.items()]
    lines.append(
        f"- Not covered by ε: {'names of labels, ' if corpus.schema is None else ''}validation and test figures, the "
        "choice of recipe and of public data, and a server's log of its users' requests."
    )
    return "\n".join(lines)


def privacy_tags(spec: TrialSpec, metrics: dict[str, float], cost: float | None, choice: str = "") -> dict[str, str]:
    """Return the tags of a version: its guarantee in numbers and words, what chose it, and its main metrics."""
    edp = spec.edp
    private = spec.training.method != "sgd"
    tags = {
        "privacy": privacy_statement(metrics, edp, spec.corpus) if private else PLAIN,
        "delta": f"{metrics['delta']:g}",
        "unit": edp.unit,
        "neighbours": NEIGHBOURS[edp.sampling],
        "sampling": edp.sampling,
        "aggregator": "trusted",
        "corpus": spec.corpus.name,
        "model": spec.model.kind,
        "method": spec.training.method,
    }
    if choice:
        tags["choice"] = choice
    if cost is not None:
        tags["epsilon_of_sweep"] = "unknown" if math.isnan(cost) else epsilon_digits(cost)
    return tags | {key: FIGURES[key].exact(metrics[key]) for key in _TAGS if key in metrics}


_TAGS = (
    *("epsilon", "epsilon_paper", "epsilon_user", "epsilon_read", "epsilon_read_upper"),
    *("noise_factor_at_least", "noise_factor_at_most"),
    *(f"{split}{name}" for name in ("ser", "mia_auc", TPR) for split in ("valid_", "")),
)
"""The figures that tags of a version repeat, so that they can be searched and checked."""

NEIGHBOURS = {"shuffle": "one replaced by nothing", "poisson": "one added or removed"}
"""The neighbouring relation of a guarantee, by sampling."""


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
