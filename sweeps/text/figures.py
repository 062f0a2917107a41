"""The figures of a model as every place shows them (`FIGURES`), and its guarantee in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edp.rounding import rounded_down, rounded_up
from edp.spec import EDPSpec
from trainables.config import CorpusSpec
from trainables.records.pareto import interval_of, selection_key

NO_GUARANTEE = 1e4
"""Smallest ε that is labelled as no formal guarantee."""

MEANINGFUL = 10.0
"""Largest ε that is called a guarantee."""

WORTH = ((1.0, "strong"), (MEANINGFUL, "reasonable"), (NO_GUARANTEE, "weak, if any"))
"""Tiers of ε by upper end (Ponomareva et al. 2023). Above the last one there is no formal guarantee."""

SMALL = 0.1
"""Largest δ·n that is called small."""

LABELS_PUBLIC = "labels are taken to be public"

UNITS = {"example": "one utterance", "micro_batch": "one micro-batch", "user": "one user"}

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


_ROUND: Mapping[str, Callable[[float, int], float]] = {"upper": rounded_up, "lower": rounded_down}


@dataclass(frozen=True)
class Figure:
    """A quantity of a model, and the one way in which every place shows it."""

    key: str
    """Its name among a model's metrics, or that of a setting."""
    name: str
    of: str = ""
    """What it is of, as a label has it in brackets."""
    short: str = ""
    """The same for a narrow column; "": `of`."""
    better: Literal["lower", "higher", ""] = ""
    unit: Literal["%", "ε", "s", ""] = ""
    """`%`: a share from 0 to 1, shown in percent."""
    digits: int | None = None
    """Digits behind the point; None: three significant ones."""
    bound: Literal["upper", "lower", ""] = ""
    """An upper bound is rounded up, a lower one down."""
    log: bool = False
    """True if charts draw it on a logarithmic axis."""
    beside: str = ""
    """The key of the share at which it was measured, which is shown with it."""

    @property
    def label(self) -> str:
        """Its name in charts and lists."""
        return f"{self.name} ({self.of})" if self.of else self.name

    @property
    def head(self) -> str:
        """Its name in a narrow column."""
        return f"{self.name} {self.short or self.of}".strip()

    @property
    def percent(self) -> bool:
        """True for a share."""
        return self.unit == "%"

    def text(self, value: Any, *, sentence: bool = False) -> str:
        """Format a value, a bound so that it is no better than it is. A setting may have any value.

        Args:
            sentence: True to say in words that an ε is no formal guarantee; False to mark it, for a caption to explain.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        if math.isnan(value):
            return "–"
        if self.bound:
            value = _ROUND[self.bound](value, 3)
        if self.unit == "ε" and self.bound == "upper" and value >= NO_GUARANTEE:
            if sentence:
                return f"{'∞' if math.isinf(value) else f'{value:.2e}'} (no formal guarantee)"
            return f"∞ {MARK}" if math.isinf(value) else f"{rounded_up(value, 2):.1e} {MARK}"
        if self.percent:
            return _percent(value) if self.digits is None else f"{value:.{self.digits}%}"
        if self.unit == "s":
            return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
        if isinstance(value, int):
            return f"{value:,}"
        return number(value) if self.digits is None else f"{value:.{self.digits}f}"

    def exact(self, value: float, digits: int = 6) -> str:
        """Format a value with more significant digits than `text` has."""
        return f"{_ROUND[self.bound](value, digits) if self.bound else value:.{digits}g}"

    def cell(self, metrics: Metrics, *, interval: bool = False) -> str:
        """Return the figure of a model, with ± half its 95 % interval if `interval`; "" if it was not measured."""
        if metrics.get(self.key) is None:
            return ""
        words = self.text(metrics[self.key])
        if (at := metrics.get(self.beside)) is not None:
            words += f" at {_percent(at)}"
        if not interval or (ends := interval_of(metrics, self.key)) is None:
            return words
        return f"{words} ±{(100 if self.percent else 1) * (ends[1] - ends[0]) / 2:.{self.digits}f}"

    def ends(self, metrics: Metrics, between: str = " – ") -> str:
        """Return the ends of the figure's 95 % interval; "" if it has none."""
        return between.join(map(self.text, interval_of(metrics, self.key) or ()))

    def change(self, value: float, baseline: float | None) -> str:
        """Return the difference to a baseline: of shares in points, of costs the ratio; "" if it would say little."""
        if self.log or baseline is None or not (math.isfinite(value) and math.isfinite(baseline)):
            return ""
        if self.unit == "s":
            return f"× {value / baseline:.2g}" if baseline else ""
        if self.percent:
            return f"{round(100 * (value - baseline), 1) + 0.0:+.1f} points"  # + 0.0, or it might be -0.0
        return f"{round(value - baseline, 3) + 0.0:+.3f}"


MARK = "†"
"""Label for "no formal guarantee" in narrow columns. The table's caption explains it."""


def _on_both(key: str, name: str, **how: Any) -> list[Figure]:
    """Return a figure of the validation split, and of the test split."""
    at, splits = how.pop("beside", ""), (("valid_", "validation", "valid"), ("", "test", "test"))
    return [Figure(f"{v}{key}", name, of, short, "lower", beside=at and v + at, **how) for v, of, short in splits]


FIGURES: Mapping[str, Figure] = {
    figure.key: figure
    for figure in (
        *_on_both("ser", "SER", unit="%", digits=1),
        *_on_both("mia_auc", "MIA AUC", digits=3),
        Figure("epsilon", "ε", "honest", "", "lower", "ε", bound="upper", log=True),
        Figure("epsilon_user", "ε", "of a user", "user", "lower", "ε", bound="upper", log=True),
        Figure("epsilon_paper", "ε", "as the paper reckons", "paper", "lower", "ε", bound="upper", log=True),
        Figure("intent_accuracy", "Intent accuracy", better="higher", unit="%", digits=1),
        Figure("slot_f1", "Slot F1", better="higher", unit="%", digits=1),
        *_on_both("mia_tpr_at_1pct_fpr", "MIA TPR at 1 % FPR", unit="%", digits=1, beside="mia_realised_1pct_fpr"),
        Figure("gpu_seconds", "GPU-seconds", better="lower", unit="s"),
        Figure("worker_seconds", "Worker-seconds", better="lower", unit="s"),
        Figure("epsilon_read", "ε", "read, at least", unit="ε", bound="lower"),
        Figure("epsilon_read_upper", "ε", "read, at most", unit="ε", bound="upper"),
        Figure("epsilon_audited", "ε", "audited, at least", unit="ε", bound="lower"),
        Figure("noise_factor_at_least", "noise over the ledger's", "at least", bound="lower"),
        Figure("noise_factor_at_most", "noise over the ledger's", "at most", bound="upper"),
        Figure("permitted_tpr_at_1pct_fpr", "Permitted TPR at 1 % FPR", unit="%", bound="upper"),
        Figure("permitted_tpr_at_01pct_fpr", "Permitted TPR at 0.1 % FPR", unit="%", bound="upper"),
        Figure("gaussian_mu", "μ of Gaussian DP", bound="upper"),
    )
}
"""Every figure of a model that is shown to people, by key."""


def deciding_figure(metrics: Metrics, name: str) -> Figure:
    """Return the figure that chooses for an objective: of the validation split, if a model has it."""
    return FIGURES[selection_key(metrics, name)]


def deciding_cell(metrics: Metrics, name: str, *, interval: bool = False) -> str:
    """Return the cell of the figure that chooses for an objective."""
    return deciding_figure(metrics, name).cell(metrics, interval=interval)


def epsilon_text(epsilon: float) -> str:
    """Format ε, rounded up, for a sentence; "unknown" for NaN."""
    return "unknown" if math.isnan(epsilon) else FIGURES["epsilon"].text(epsilon, sentence=True)


def epsilon_cell(epsilon: float) -> str:
    """Format ε, rounded up, for a narrow column."""
    return FIGURES["epsilon"].text(epsilon)


def epsilon_digits(epsilon: float, digits: int = 6) -> str:
    """Format ε with more digits than tables have, rounded up."""
    return FIGURES["epsilon"].exact(epsilon, digits)


def read_text(metrics: Metrics) -> str:
    """Format the bounds of ε that the training's own audit read, for a narrow column; "" if it read none."""
    lower, upper = (FIGURES[name].cell(metrics) for name in ("epsilon_read", "epsilon_read_upper"))
    if not (lower and upper):
        return ""
    return upper if math.isinf(metrics["epsilon_read_upper"]) else f"{lower}–{upper}"


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
    return f"{utility_words(metrics, 'valid_ser')}, MIA AUC {FIGURES['mia_auc'].cell(metrics)}, {privacy}"


def utility_words(metrics: Metrics, *more: str) -> str:
    """Return the utility metrics of a model's task in words: of the test split, and before them those of `more`."""
    error = "test SER" if "slot_f1" in metrics else "test SER (error rate)"
    names = dict.fromkeys(more, "validation SER")
    names |= {"ser": error, "intent_accuracy": "intent accuracy", "slot_f1": "slot F1"}
    return ", ".join(f"{words} {FIGURES[name].cell(metrics)}" for name, words in names.items() if name in metrics)


def epsilon_words(metrics: Metrics) -> list[str]:
    """Return a model's epsilons in words: honest, of a user if known, the paper's claim, as read, and audited."""
    known = {"honest": "epsilon", "of a user": "epsilon_user", "paper": "epsilon_paper"}
    least = FIGURES["epsilon_audited"].cell(metrics)
    return [
        *(
            f"ε {of} {epsilon_text(metrics.get(key, math.nan))}"
            for of, key in known.items()
            if key in metrics or of != "of a user"
        ),
        *([f"ε read {read}"] if (read := read_text(metrics)) else []),
        *([f"ε audited ≥ {least}"] if least else []),
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
    sampling = edp.sampling.replace("poisson", "Poisson")
    said = [f"({rounded_up(epsilon, 4):g}, {edp.delta:g})-DP for {UNITS[edp.unit]}", f"{sampling} sampling"]
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


def enumerated(names: Sequence[str], most: int | None = None) -> str:
    """Return names as a sentence lists them (`1, 2 and 3`): at most `most`, then how many more there are."""
    shown = [*names] if most is None or len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1] if shown else "")))


def permitted_words(figures: Metrics) -> str:
    """Return the largest true positive rates that the ledger permits any attack, rounded up; "" if unknown."""
    names = ("permitted_tpr_at_1pct_fpr", "permitted_tpr_at_01pct_fpr", "gaussian_mu")
    at_1, at_01, mu = (FIGURES[name].cell(figures) for name in names)
    if not (at_1 and at_01 and mu):
        return ""
    return (
        f"the ledger permits any attack a TPR of {at_1} at 1 % FPR and of {at_01} at 0.1 % (Gaussian DP with μ = {mu})"
    )


def shadow_words(corpus: str) -> str:
    """Return how the sweep's own attack was trained."""
    return f"a shadow model trained without privacy on {corpus}"
