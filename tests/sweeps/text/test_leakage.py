"""What attacks and audits found, in words."""

from __future__ import annotations

import math

from sweeps.text.figures import audit_words, permitted_words, tpr_text


def test_a_tpr_says_which_fpr_was_realised() -> None:
    assert tpr_text(0.05, 0.0091) == "5.0% at 0.91 %"
    assert tpr_text(0.05, None) == "5.0%"


def test_both_bounds_of_an_audit_say_what_they_assume() -> None:
    figures = {"epsilon_audited_any_mechanism": 2.5, "epsilon_audited_own_noise": 4.0, "epsilon": 8.0}
    of_any, of_own = audit_words(figures)
    assert "ε ≥ 2.5 whatever the mechanism" in of_any
    assert "ε ≥ 4 if its trade-off curve is its ledger's" in of_own
    assert "a Gaussian mechanism's" in audit_words(figures | {"epsilon": math.inf})[1]
    assert audit_words({"epsilon": 8.0}) == []


def test_what_a_ledger_permits_is_said_where_it_is_known() -> None:
    figures = {"gaussian_mu": 1.25, "permitted_tpr_at_1pct_fpr": 0.14, "permitted_tpr_at_01pct_fpr": 0.033}
    assert permitted_words(figures) == (
        "the ledger permits any attack a TPR of 14 % at 1 % FPR and of 3.3 % at 0.1 % (Gaussian DP with μ = 1.25)"
    )
    assert permitted_words({"gaussian_mu": 1.25}) == ""
