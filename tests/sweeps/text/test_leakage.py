"""What attacks and audits found, in words."""

from __future__ import annotations

from sweeps.text.figures import permitted_words, tpr_text


def test_a_tpr_says_which_fpr_was_realised() -> None:
    assert tpr_text(0.05, 0.0091) == "5.0% at 0.91 %"
    assert tpr_text(0.05, None) == "5.0%"


def test_what_a_ledger_permits_is_said_where_it_is_known() -> None:
    figures = {"gaussian_mu": 1.25, "permitted_tpr_at_1pct_fpr": 0.14, "permitted_tpr_at_01pct_fpr": 0.033}
    assert permitted_words(figures) == (
        "the ledger permits any attack a TPR of 14 % at 1 % FPR and of 3.3 % at 0.1 % (Gaussian DP with μ = 1.25)"
    )
    assert permitted_words({"gaussian_mu": 1.25}) == ""
