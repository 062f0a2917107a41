"""Metrics, epsilons, guarantees and results of attacks as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edp.rounding import rounded_down, rounded_up
from edp.spec import EDPSpec
from trainables.config import CorpusSpec

NO_GUARANTEE = 1e4
"""Smallest ε that is labelled as no formal guarantee."""

MEANINGFUL = 10.0
"""Largest ε that is called a guarantee."""

WORTH = ((1.0, "strong"), (MEANINGFUL, "reasonable"), (NO_GUARANTEE, "weak, if any"))
"""Tiers of ε by upper end (Ponomareva et al. 2023). Above the last one there is no formal guarantee."""

SMALL = 0.1
"""Largest δ·n that is called small."""

MARK = "†"
"""Label for "no formal guarantee" in narrow columns. The table's caption explains it."""

LABELS_PUBLIC = "labels are taken to be public"

NO_USERS = "users are not known: a person with several utterances is protected less"

Metrics = Mapping[str, Any]
"""Metrics of a model, or a document of attacks. A missing key, or None, means unknown."""


def number(value: float) -> str:
    """Format a number with three digits; below 10,000 with all digits before the point (1002, not 1e+03)."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞"
    return f"{value:.0f}" if 99.95 <= abs(value) < NO_GUARANTEE else f"{value:.3g}"


def epsilon_text(epsilon: float) -> str:
    """Format ε, rounded up, with a label if it is no formal guarantee."""
    shown = rounded_up(epsilon)
    if math.isinf(shown):
        return "∞ (no formal guarantee)"
    return f"{shown:.2e} (no formal guarantee)" if shown >= NO_GUARANTEE else number(shown)


def epsilon_cell(epsilon: float) -> str:
    """Format ε, rounded up, for a narrow column."""
    shown = rounded_up(epsilon)
    if math.isinf(shown):
        return f"∞ {MARK}"
    return f"{rounded_up(epsilon, 2):.1e} {MARK}" if shown >= NO_GUARANTEE else number(shown)


def epsilon_digits(epsilon: float, digits: int = 6) -> str:
    """Format ε with more digits than tables have, rounded up."""
    return f"{rounded_up(epsilon, digits):.{digits}g}"


def least_epsilon(bound: float) -> str:
    """Format a lower bound of ε, rounded down."""
    return number(rounded_down(bound))


def user_cell(metrics: Metrics) -> str:
    """Format a user's ε for a narrow column; "" if users are unknown."""
    return epsilon_cell(metrics["epsilon_user"]) if "epsilon_user" in metrics else ""


def read_text(metrics: Metrics) -> str:
    """Format the bounds of ε that the training's own audit read, for a narrow column; "" if it read none."""
    lower, upper = (metrics.get(name) for name in ("epsilon_read", "epsilon_read_upper"))
    if lower is None or upper is None:
        return ""
    return epsilon_cell(upper) if math.isinf(upper) else f"{least_epsilon(lower)}–{epsilon_cell(upper)}"


def noise_read_words(metrics: Metrics) -> str:
    """Return what the training's own audit read of its noise, in words; "" if it read none."""
    least, most = (metrics.get(f"noise_factor_at_{end}") for end in ("least", "most"))
    if least is None or most is None:
        return ""
    return (
        f"{_percent(rounded_down(least))} to {_percent(rounded_up(most))} of the noise that the ledger states was "
        f"really added, so ε reads {read_text(metrics)} (each bound with 95 % confidence, if noise is Gaussian)"
    )


def tpr_text(tpr: float, realised: float | None, digits: int = 1) -> str:
    """Format a true positive rate with the false positive rate realised at its threshold."""
    words = f"{tpr:.{digits}%}"
    return words if realised is None else f"{words} at {_percent(realised)}"


def _percent(share: float) -> str:
    """Format a share in percent with three digits."""
    return f"{100 * share:.3g} %"


def metrics_line(metrics: Metrics, corpus: CorpusSpec) -> str:
    """Return the figures of a trained model in one line."""
    remarks = [*users_remark(metrics), *labels_remark(corpus)]
    privacy = "; ".join([f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}", *remarks])
    seen = f"validation SER {metrics['valid_ser']:.1%}, " if "valid_ser" in metrics else ""
    return f"{seen}{utility_words(metrics)}, MIA AUC {metrics['mia_auc']:.3f}, {privacy}"


def utility_words(metrics: Metrics) -> str:
    """Return the utility metrics of a model's task on the test split in words."""
    error = "test SER" if "slot_f1" in metrics else "test SER (error rate)"
    names = {"ser": error, "intent_accuracy": "intent accuracy", "slot_f1": "slot F1"}
    return ", ".join(f"{words} {metrics[name]:.1%}" for name, words in names.items() if name in metrics)


def epsilon_words(metrics: Metrics) -> list[str]:
    """Return a model's epsilons in words: honest, of a user if known, the paper's claim, as read, and audited."""
    honest, paper = (metrics.get(name, math.nan) for name in ("epsilon", "epsilon_paper"))
    read = read_text(metrics)
    return [
        f"ε honest {epsilon_text(honest)}",
        *([f"ε of a user {epsilon_text(metrics['epsilon_user'])}"] if "epsilon_user" in metrics else []),
        f"ε paper {epsilon_text(paper)}",
        *([f"ε read {read}"] if read else []),
        *([f"ε audited ≥ {least_epsilon(metrics['epsilon_audited'])}"] if "epsilon_audited" in metrics else []),
    ]


def ends_early(metrics: Metrics) -> bool:
    """Return True if a model's ε counts steps that were planned and did not make it."""
    return metrics.get("epsilon_executed", math.inf) < metrics["epsilon"]


def users_remark(metrics: Metrics) -> list[str]:
    """Return the remark for an ε per utterance of a corpus whose users are unknown; [] if there is nothing to say."""
    return [NO_USERS] if "epsilon_user" not in metrics and metrics.get("epsilon", math.inf) < NO_GUARANTEE else []


def labels_remark(corpus: CorpusSpec) -> list[str]:
    """Return the remark for an ε of a corpus whose labels were read off it; [] if it has a schema."""
    return [LABELS_PUBLIC] if corpus.schema is None else []


def labels_field(corpus: CorpusSpec) -> dict[str, bool]:
    """Return that remark for a JSON document."""
    return {"labels_taken_to_be_public": corpus.schema is None}


def users_notes(models: Iterable[Metrics]) -> str:
    """Return the sentence below a table of models if the users of one are unknown; else ""."""
    return f" {NO_USERS.capitalize()}." if any(map(users_remark, models)) else ""


def measured(metrics: Metrics) -> dict[str, Any]:
    """Return `metrics` and `formal_guarantee` for a JSON document.

    `formal_guarantee` is None if there is no ε, as for a failed trial.
    """
    guarantee = metrics["epsilon"] < NO_GUARANTEE if "epsilon" in metrics else None
    return {"metrics": metrics, "formal_guarantee": guarantee}


def privacy_statement(metrics: dict[str, float], edp: EDPSpec, corpus: CorpusSpec) -> str:
    """Return a run's guarantee in words, with ε rounded up to four digits, and what it takes for granted."""
    if edp.reproducible_noise is not None:
        return "not private: the noise is reproducible"
    epsilon = metrics["epsilon"]
    if epsilon >= NO_GUARANTEE:
        return f"no formal guarantee (epsilon {rounded_up(epsilon):.3g})"
    unit = {"example": "one example", "micro_batch": "one micro-batch", "user": "one user"}[edp.unit]
    said = [f"({rounded_up(epsilon, 4):g}, {edp.delta:g})-DP for {unit}", f"{edp.sampling} sampling"]
    return ", ".join([*said, "trusted aggregator", *labels_remark(corpus)])


def delta_remark(delta: float, unit: str, examples: int | None) -> str | None:
    """Return a warning for a δ of 1/examples or more, which permits publishing an utterance outright; else None.

    If whole micro-batches are protected, it permits that with a probability of examples·δ over their size. For users
    such a δ is refused elsewhere.

    Args:
        examples: training utterances; None if unknown. The warning then says for how many it holds.
    """
    if unit == "user" or (examples is not None and delta * examples < 1):
        return None
    if examples is None:
        return (
            f"delta = {delta:g}: on {math.ceil(1 / delta):,} training utterances or more, publishing one of them now "
            "and then counts as private at this delta; use less than one in their number"
        )
    return (
        f"edp.delta = {delta:g}: at this delta, publishing one of the {examples:,} training utterances now and then "
        f"counts as private; use less than {1 / examples:.2g}"
    )


def delta_words(delta: float, counted: str, n: int | None) -> tuple[str, bool]:
    """Return δ and δ·n with a judgement in words, and True if δ is small for so many units.

    A mechanism that publishes each unit outright with probability δ is (0, δ)-private. It publishes δ·n of them on
    average, so δ·n must be far below 1.

    Args:
        counted: a unit of the guarantee, such as `utterance`.
        n: their number; None if unknown.
    """
    if n is None:
        return f"δ = {delta:g}; the number of {counted}s is unknown, so nothing says whether it is small", False
    share = rounded_up(delta * n, 2)
    product = f"δ = {delta:g} with {n:,} training {counted}s: δ·n = {share:.2g}, which is"
    if share <= SMALL:
        return f"{product} small", True
    judged = "too large" if share >= 1 else "not small"
    return (
        f"{product} {judged}: at this δ, publishing {share:.2g} of the {counted}s outright counts as private; a small "
        f"δ is at most {rounded_down(SMALL / n, 2):.2g}",
        False,
    )


def params_text(params: Mapping[str, Any], *, short: bool = False) -> str:
    """Return a configuration in one line. `short` names a setting by the last part of its path if that is unique."""
    lasts = [name.rpartition(".")[2] for name in params]
    names = {name: last if short and lasts.count(last) == 1 else name for name, last in zip(params, lasts, strict=True)}
    shown = {names[k]: v for k, v in params.items() if not (k == "tau" and v == 0)}

    def written(name: str, value: Any) -> str:
        return number(rounded_up(value) if name == "epsilon" else value) if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {written(name, value)}" for name, value in shown.items())


def shared_params(configurations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that several configurations share; {} for fewer than two configurations."""
    if len(configurations) < 2:
        return {}
    first, *others = configurations
    return {name: value for name, value in first.items() if all(name in o and o[name] == value for o in others)}


def relative_change(value: float, baseline: float) -> float:
    """Return the change in percent of the baseline, as the paper's Table 1 gives ΔSER and ΔMIA."""
    return 100 * (value - baseline) / baseline if baseline else math.nan


def points_apart(value: float, baseline: float) -> str:
    """Format the difference of two shares in percentage points. A ratio to a small baseline would say little."""
    return f"{round(100 * (value - baseline), 1) + 0.0:+.1f} points"  # + 0.0, or it might be -0.0


def enumerated(names: Sequence[str], most: int | None = None) -> str:
    """Return names as a sentence lists them (`1, 2 and 3`): at most `most`, then how many more there are."""
    shown = [*names] if most is None or len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1] if shown else "")))


def permitted_words(figures: Metrics) -> str:
    """Return the largest true positive rates that the ledger permits any attack, rounded up; "" if unknown."""
    at_1, at_01, mu = (
        figures.get(name) for name in ("permitted_tpr_at_1pct_fpr", "permitted_tpr_at_01pct_fpr", "gaussian_mu")
    )
    if at_1 is None or at_01 is None or mu is None:
        return ""
    return (
        f"the ledger permits any attack a TPR of {_percent(rounded_up(at_1))} at 1 % FPR and of "
        f"{_percent(rounded_up(at_01))} at 0.1 % (Gaussian DP with μ = {number(rounded_up(mu))})"
    )


def compared_words(document: Metrics) -> str:
    """Return the number of reference models and how they were trained."""
    count, kind, epochs = (document[name] for name in ("references", "reference_training", "reference_epochs"))
    trained = {"sgd": "without privacy", "own": "as the model under attack was"}[kind]
    return f"compared with {count} reference models trained {trained} ({kind}), {epochs} epochs each"


def shadow_words(corpus: str) -> str:
    """Return how the sweep's own attack was trained."""
    return f"a shadow model trained without privacy on {corpus}"
