"""Every registered attack keeps the promises that figures, tables and intervals rest on."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from trainables.measure.attacks import Attack, Evidence, every_attack
from trainables.measure.attacks.roc import run_attacks
from trainables.measure.attacks.shadow import fit_attack
from trainables.measure.predictions import WIDTH

pytestmark = pytest.mark.slow  # two shadow attacks are fitted for all of them
ATTACKS = every_attack()
each = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


def evidence(gap: float, n: int = 1_000, k: int = 8, z: int = 300) -> Evidence:
    """Return what is seen of a model whose members have a loss smaller, and features larger, by about `gap`."""
    rng = np.random.default_rng(0)

    def losses(ease: Any, inside: Any) -> Any:
        return np.logaddexp(0, -(ease + gap * inside + rng.normal(0, 1, inside.shape)))

    def features(inside: Any) -> Any:
        return (rng.normal(0, 1, (len(inside), WIDTH)) + gap * inside[:, None] / 3).astype(np.float32)

    ease_n, ease_z = rng.normal(0, 1, n), rng.normal(0, 1, z)
    member_n = np.arange(n) < n // 2
    halves = [rng.permutation(n) < n // 2 for _ in range(k // 2)]
    inside_kn = np.array([half for one in halves for half in (one, ~one)])
    shadows = [fit_attack(features(np.ones(200)), features(np.zeros(200))) for _ in range(2)]
    return Evidence(
        members=n // 2,
        features_nf=features(member_n),
        losses_n=losses(ease_n, member_n),
        losses_z=losses(ease_z, np.zeros(z)),
        losses_kn=losses(ease_n, inside_kn),
        losses_kz=losses(ease_z, np.zeros((k, z))),
        inside_kn=inside_kn,
        shadow=shadows[0],
        same_corpus=shadows[1],
        apart_n=rng.random(n) < 0.7,
    )


@pytest.fixture(scope="module")
def leaky() -> Evidence:
    return evidence(gap=2.0)


@pytest.fixture(scope="module")
def tight() -> Evidence:
    return evidence(gap=0.0)


def scores(attack: Attack, seen: Evidence) -> np.ndarray:
    return attack.score(*(getattr(seen, field) for field in attack.sees))


def reordered(seen: Evidence, order: np.ndarray) -> Evidence:
    """Return the evidence with its utterances in another order, by the names of its fields' axes."""
    changes: dict[str, Any] = {}
    for field in fields(Evidence):
        axis = {"n": 0, "nf": 0, "kn": 1}.get(field.name.rpartition("_")[2])
        if axis is not None:
            changes[field.name] = np.take(getattr(seen, field.name), order, axis=axis)
    return replace(seen, **changes)


@each
def test_a_score_for_each_utterance_and_the_same_again(attack: Attack, leaky: Evidence) -> None:
    found = scores(attack, leaky)
    assert found.shape == (1_000,)
    assert not np.isnan(found).any()
    assert len(np.unique(found)) > 100, "no curve can be drawn of a few thresholds"
    np.testing.assert_array_equal(scores(attack, leaky), found)


@each
def test_scores_are_higher_for_members(attack: Attack, leaky: Evidence) -> None:
    (found,) = run_attacks(leaky, [attack])
    assert found.auc_ci[0] > 0.6


@each
def test_nothing_is_found_where_members_are_like_the_others(attack: Attack, tight: Evidence) -> None:
    (found,) = run_attacks(tight, [attack])
    assert found.auc_ci[0] - 0.02 <= 0.5 <= found.auc_ci[1] + 0.02


@each
def test_the_order_of_utterances_does_not_matter(attack: Attack, leaky: Evidence) -> None:
    order = np.random.default_rng(1).permutation(1_000)
    np.testing.assert_allclose(scores(attack, reordered(leaky, order)), scores(attack, leaky)[order], atol=1e-9)


@each
def test_it_sees_what_it_says_and_never_who_is_a_member(attack: Attack, leaky: Evidence) -> None:
    known = {field.name for field in fields(Evidence)} - {"members"}
    assert set(attack.sees) <= known
    for name in attack.sees:
        assert run_attacks(replace(leaky, **{name: None}), [attack]) == [], name
    assert attack.only in {None, *attack.sees}


@each
def test_only_the_utterances_that_it_may_be_tried_on_count(attack: Attack, leaky: Evidence) -> None:
    (found,) = run_attacks(leaky, [attack])
    tried = np.ones(1_000, bool) if attack.only is None else getattr(leaky, attack.only)
    assert (found.members, found.non_members) == (tried[:500].sum(), tried[500:].sum())
