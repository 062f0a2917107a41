"""What every place shows of the attacks on a model: a table's columns, and lines in words."""

from __future__ import annotations

from edp.rounding import rounded_down, rounded_up
from sweeps.text.figures import LABELS_PUBLIC, Metrics, epsilon_words, permitted_words, tpr_text, users_remark

ATTACK_HEADS = ("attack", "AUC", "TPR at FPR ≤ 1 %", "at FPR ≤ 0.1 %")
ATTACK_LEGEND = (
    "*: the strongest attack. ± and brackets: 95 % intervals. 5 % at 0.9 %: TPR 5 % at a realised FPR of 0.9 %."
)


def attack_rows(document: Metrics) -> list[tuple[str, ...]]:
    """Return the cells below `ATTACK_HEADS` of each attack in a document of attacks."""

    def tpr(one: Metrics, limit: str) -> str:
        low, high = one[f"tpr_at_{limit}_ci"]
        found = tpr_text(one[f"tpr_at_{limit}"], one[f"realised_{limit}"])
        return f"{found} ({100 * low:.1f} to {100 * high:.1f})"

    return [
        (
            f"{one['name']} *" if one["name"] == document["strongest"] else one["name"],
            f"{one['auc']:.3f} ±{(one['auc_ci'][1] - one['auc_ci'][0]) / 2:.3f}",
            tpr(one, "1pct_fpr"),
            tpr(one, "01pct_fpr"),
        )
        for one in document["attacks"]
    ]


def compared_words(document: Metrics) -> str:
    """Return the number of reference models and how they were trained."""
    count, kind, epochs = (document[name] for name in ("references", "reference_training", "reference_epochs"))
    trained = {"sgd": "without privacy", "own": "as the model under attack was"}[kind]
    return f"compared with {count} reference models trained {trained} ({kind}), {epochs} epochs each"


def extraction_words(document: Metrics) -> str:
    """Return how many masked words of training utterances an attack found, and how many guessing would find."""
    found = document.get("extraction")
    if found is None:
        reason = (
            ", as no word of the slot type secret has a candidate in the test split" if "extraction" in document else ""
        )
        return f"extraction: not measured{reason}"
    low, high = found["exposure_ci"]
    return (
        f"extraction: {found['extracted']} of {found['secrets']} masked words found among {found['candidates']} "
        f"(by guessing {found['extracted_by_guessing']:.1f}); mean exposure {found['exposure']:.2f} bits "
        f"({rounded_down(low):.3g} to {rounded_up(high):.3g}; by guessing {found['exposure_by_guessing']:.2f})"
    )


def attack_lines(document: Metrics) -> list[str]:
    """Return what a document of attacks says besides its table, in words."""
    known = {name: value for name, value in document.items() if value is not None}
    return [
        compared_words(document),
        extraction_words(document),
        *([permitted_words(known)] if permitted_words(known) else []),
        f"{', '.join(epsilon_words(known))}, at δ = {document['delta']:g}",
        *users_remark(known),
        *([LABELS_PUBLIC] if document.get("labels_taken_to_be_public") else []),
    ]
