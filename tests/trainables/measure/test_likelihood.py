"""LiRA and RMIA against literal versions, and on losses whose distribution is known."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from trainables.measure.attacks.likelihood import lira_scores, logit_confidence, loss_scores, rmia_a, rmia_scores
from trainables.measure.attacks.roc import measure


def losses_of(confidence):
    """The loss whose logit confidence is given."""
    return np.logaddexp(0, -confidence)


@pytest.mark.parametrize("p", [1e-12, 0.01, 0.5, 0.99, 1 - 1e-7])
def test_logit_confidence_is_the_logit_of_the_probability(p):
    assert logit_confidence(np.array([-math.log(p)]))[0] == pytest.approx(math.log(p / (1 - p)), rel=1e-6)


def test_logit_confidence_is_finite_where_a_probability_would_not_be():
    found = logit_confidence(np.array([0.0, -1e-6, 1e-300, 1e4]))
    assert np.isfinite(found).all()
    assert found[-1] == pytest.approx(-1e4)


def paired(rng, k, n):
    """Half of the utterances inside each even reference, the other half inside the next one."""
    rows = []
    for _ in range(k // 2):
        half = rng.permutation(n) < n // 2
        rows += [half, ~half]
    return np.array(rows)


def sample(rng, k=16, n=600, gap=1.0, z=200):
    """Losses of models whose logit confidence is an utterance's own ease, `gap` more for a member, and noise."""
    ease_n, ease_z = rng.normal(0, 3, n), rng.normal(0, 3, z)
    inside_kn = paired(rng, k, n)
    member_n = rng.permutation(n) < n // 2
    target_n = losses_of(ease_n + gap * member_n + rng.normal(0, 1, n))
    references_kn = losses_of(ease_n + gap * inside_kn + rng.normal(0, 1, (k, n)))
    target_z = losses_of(ease_z + rng.normal(0, 1, z))
    references_kz = losses_of(ease_z + rng.normal(0, 1, (k, z)))
    return target_n, references_kn, inside_kn, target_z, references_kz, member_n


@pytest.mark.parametrize("k", [4, 64])
@pytest.mark.parametrize("online", [True, False])
def test_lira_is_the_likelihood_ratio_of_two_distributions_of_one_more_model(k, online):
    """All utterances have the variance 1 here, so their own hardly counts, and the prediction is nearly normal."""
    target, references, inside, *_ = sample(np.random.default_rng(0), k=k, n=1000)
    found = lira_scores(target, references, inside, online=online)
    phi, phis = logit_confidence(target), logit_confidence(references)
    mean_in, mean_out = ((phis * chosen).sum(0) / chosen.sum(0) for chosen in (inside, ~inside))
    std = math.sqrt(1 + 2 / k)
    if online:
        expected = norm.logpdf(phi, mean_in, std) - norm.logpdf(phi, mean_out, std)
    else:
        expected = -norm.logsf(phi, mean_out, std)
    assert np.corrcoef(found, expected)[0, 1] > 0.995
    assert np.polyfit(expected, found, 1)[0] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("references", "widest"), [(4, 0.04), (16, 0.027)])
def test_a_threshold_has_the_same_fpr_for_utterances_of_like_and_of_unlike_variance(references, widest):
    """With one variance for all, 5.5 % of the quarter with the largest variances exceed the threshold of 1 %."""
    rng, n = np.random.default_rng(6), 20_000
    inside_kn = paired(rng, references, n)
    for std_n in (np.sqrt(4 / rng.chisquare(4, n)), np.ones(n)):
        references_kn, target_n = (losses_of(std_n * rng.normal(0, 1, size)) for size in ((references, n), n))
        p_n = np.exp(-lira_scores(target_n, references_kn, inside_kn, online=False))
        assert (p_n <= 0.01).mean() == pytest.approx(0.01, rel=0.25)
        assert (p_n <= 0.1).mean() == pytest.approx(0.1, rel=0.1)
        assert (p_n[np.argsort(std_n)[-n // 4 :]] <= 0.01).mean() < (0.0125 if std_n.min() == 1 else widest)


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_rmia_counts_the_population_that_an_utterance_is_likelier_than(online, gamma):
    target, references, inside, target_z, references_kz, _ = sample(np.random.default_rng(1), k=4, n=30, z=25)
    a = 0.3
    found = rmia_scores(target, references, inside, target_z, references_kz, online=online, a=a, gamma=gamma)

    def ratio(loss, others):
        mean = np.mean(np.exp(-np.array(others)))
        return math.exp(-loss) / (mean if online else ((1 + a) * mean + 1 - a) / 2)

    zs = [ratio(target_z[j], references_kz[:, j]) for j in range(25)]
    for i in range(30):
        others = [references[j, i] for j in range(4) if online or not inside[j, i]]
        x = ratio(target[i], others)
        assert int(found[i] * 25) == sum(x / z >= gamma for z in zs)


def test_a_small_population_does_not_hide_the_surest_members():
    target, references, inside, target_z, references_kz, member = sample(np.random.default_rng(5), n=4000, gap=2, z=50)
    scores = rmia_scores(target, references, inside, target_z, references_kz, online=True)
    assert len(np.unique(scores)) == len(scores)
    found = measure("a", scores[member], scores[~member])
    assert found.tpr_at_01pct_fpr > 0.01


def test_reference_models_find_members_that_the_loss_alone_does_not():
    target, references, inside, target_z, references_kz, member = sample(np.random.default_rng(2), n=2000)

    def auc(scores):
        return measure("a", scores[member], scores[~member]).auc

    a = rmia_a(references, inside, references_kz)
    aucs = {
        "loss": auc(loss_scores(target)),
        "lira_online": auc(lira_scores(target, references, inside, online=True)),
        "lira_offline": auc(lira_scores(target, references, inside, online=False)),
        "rmia_online": auc(rmia_scores(target, references, inside, target_z, references_kz, online=True)),
        "rmia_offline": auc(rmia_scores(target, references, inside, target_z, references_kz, online=False, a=a)),
    }
    best = norm.cdf(1 / math.sqrt(2))  # of who knows each utterance's ease: 0.760
    assert aucs["loss"] < 0.60
    for name in ("lira_online", "lira_offline"):
        assert best - 0.04 < aucs[name] < best + 0.03, name
    for name in ("rmia_online", "rmia_offline"):
        assert 0.66 < aucs[name] < best + 0.03, name


def test_every_attack_guesses_where_there_is_nothing_to_find():
    target, references, inside, target_z, references_kz, member = sample(np.random.default_rng(3), n=2000, gap=0.0)
    for scores in (
        loss_scores(target),
        lira_scores(target, references, inside, online=True),
        lira_scores(target, references, inside, online=False),
        rmia_scores(target, references, inside, target_z, references_kz, online=True),
        rmia_scores(target, references, inside, target_z, references_kz, online=False, a=0.5),
    ):
        low, high = measure("a", scores[member], scores[~member]).auc_ci
        assert low - 0.02 <= 0.5 <= high + 0.02


def test_two_references_are_enough_and_an_utterance_without_one_is_an_error():
    target, references, inside, target_z, references_kz, _ = sample(np.random.default_rng(4), k=2, n=20)
    assert np.isfinite(lira_scores(target, references, inside, online=True)).all()
    assert rmia_a(references, inside, references_kz) == 1.0
    assert np.isfinite(rmia_scores(target, references, inside, target_z, references_kz, online=False)).all()
    with pytest.raises(ValueError, match="no reference model"):
        lira_scores(target, references, np.ones_like(inside), online=False)
    with pytest.raises(ValueError, match="no reference model"):
        rmia_scores(target, references, np.ones_like(inside), target_z, references_kz, online=False)
