"""The audit of a training reads the noise that was added, sees planted bugs, and changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edp.accounting.epsilon import epsilon
from edp.audit import Audit, AuditReading, Scores, not_read, read_audit, read_noise
from edp.layer_noise import LayerScores
from edp.ledger import Ledger, LedgerEntry
from edp.mechanism import Mechanism
from edp.sampling import poisson_epoch, poisson_examples, shuffled_epoch
from edp.spec import EDPSpec, UserError
from edp.steps import HookUsageError
from tests.support.edp.audited import (
    EXAMPLES,
    STEPS,
    Plant,
    audited_training,
    clip_skipped,
    coins,
    drawn_at,
    noise_of_layer,
    noise_of_step,
    noise_times,
    one_worker_silent,
    planted,
)
from tests.support.workers import run_workers
from trainables.training.process import alone

DELTA = 5e-4
# 40 full batches at mu = 2, and noise that is the same in each run of these tests.
FULL: dict[str, Any] = {"C": 0.5, "z0": math.sqrt(STEPS) / 2, "reproducible_noise": 3}
POISSON: dict[str, Any] = {"C": 0.5, "z0": 2.0, "sampling": "poisson", "reproducible_noise": 3}


@pytest.fixture(autouse=True)
def _one_worker() -> Iterator[None]:
    with alone():
        yield


def private(ledger: Ledger) -> Ledger:
    """The ledger as if the noise had been secret, for a finite ε."""
    return ledger.model_copy(
        update={
            "entries": tuple(
                e.model_copy(update={"mechanism": e.mechanism.model_copy(update={"replayable": False})})
                for e in ledger.entries
            )
        }
    )


def read(settings: dict[str, Any], plant: Plant | None = None, **sizes: Any) -> tuple[AuditReading, float]:
    audit = coins()
    with planted(plant):
        hook, _ = audited_training(EDPSpec(**settings), audit, **sizes)
    ledger = private(hook.ledger)
    return read_audit(audit.scores(), ledger, DELTA), epsilon(ledger, DELTA)


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (FULL, {}),
        (FULL | {"clip": "automatic", "C": 0.01, "alpha": "none"}, {}),
        (FULL | {"decay": "linear", "tau": 0.05, "alpha_noise": "per_layer"}, {}),
        (FULL | {"unit": "user"}, {}),
        (FULL, {"batch": 60}),
        (FULL, {"micro_batches": 8}),
        (FULL | {"noise": "paper", "z0": 9.0}, {"micro_batches": 8, "batch": 64}),
        (POISSON, {"batch": 64, "epochs": 20}),
        (POISSON | {"unit": "user"}, {"batch": 64, "epochs": 20}),
        (POISSON, {"batch": 64, "micro_batches": 8, "epochs": 20}),
    ],
    ids=["full", "automatic", "decay", "user", "shuffled", "edp", "paper", "poisson", "poisson-user", "poisson-edp"],
)
@pytest.mark.slow
def test_a_sound_training_is_read_as_its_ledger_says(settings: dict[str, Any], sizes: dict[str, Any]) -> None:
    found, stated = read(settings, **sizes)
    assert found.audit_alarm is None
    assert 0.93 < found.noise_factor_at_least < 1.02
    assert 0.98 < found.noise_factor_at_most < 1.07
    assert found.epsilon_read < found.epsilon_read_upper
    assert 0.85 * stated < found.epsilon_read < 1.02 * stated


@pytest.mark.parametrize(
    ("plant", "at_least", "words"),
    [
        (noise_times(0.9), 8.7, "the noise over the clip is at most 0.9"),
        (noise_times(0.7), 11.5, "the noise over the clip is at most 0.7"),
        (noise_of_step(lambda t: t if t % 10 else -1), 8.3, "the quietest step has 0 of the ledger's noise"),
        (clip_skipped(0.05), 11.0, "the noise over the clip is at most"),
        (clip_skipped(0.01), 8.3, "the noise over the clip is at most"),
        (noise_of_step(lambda _: 0), 0.0, "noise repeats: that of all steps together is 4.4 of the ledger's"),
        (noise_of_step(lambda t: t // 2), 0.0, "noise is missing or cancels: that of all steps together is 0 of"),
        (noise_of_step(lambda t: t % 10), 0.0, "noise repeats: that of all steps together is 2 of"),
    ],
    ids=["0.9", "0.7", "one-in-ten", "clip-5%", "clip-1%", "one-noise", "twice", "every-ten"],
)
@pytest.mark.slow
def test_a_planted_bug_raises_an_alarm(plant: Plant, at_least: float, words: str) -> None:
    found, stated = read(FULL, plant)
    assert stated == pytest.approx(8.0, abs=0.1)
    assert words in str(found.audit_alarm)
    assert found.epsilon_read > at_least


@pytest.mark.parametrize(
    ("times", "words"), [(0.0, "the noise of 0 is at most 0"), (0.7, "the noise of 0 is at most 0.")]
)
@pytest.mark.parametrize(
    "settings", [FULL, FULL | {"alpha_noise": "per_layer"}, POISSON], ids=["full", "shape", "poisson"]
)
@pytest.mark.slow
def test_a_layer_with_too_little_noise_raises_an_alarm(times: float, words: str, settings: dict[str, Any]) -> None:
    sizes = {"batch": 64, "epochs": 10} if settings is POISSON else {}
    found, _ = read(settings, noise_of_layer(0, times), **sizes)
    assert str(found.audit_alarm).startswith(f"audit: {words}")
    assert found.layers["0"] < 0.85
    assert found.layers["2"] > 0.95


def test_the_alarm_of_the_layers_is_at_its_level_whatever_the_gradients_are() -> None:
    """Differences of noise, and of gradients: 1,000 sound trainings of 3 layers at a level of 5 %."""
    rng, runs, level = np.random.default_rng(0), 1000, 0.05
    watched = np.array([2, 40, 300])
    for change in (0.0, 0.1):
        alarms = below = 0
        for _ in range(runs):
            pairs = np.array([rng.noncentral_chisquare(n, n * change**2 + 1e-12, 20) / n for n in watched])
            scores = LayerScores(("a", "b", "c"), watched, pairs.mean(1), pairs.min(1), 20)
            alarms += bool(scores.alarms(level))
            below += int((scores.at_most(level) < 1).sum())
        assert alarms <= (level + 3 * math.sqrt(level / runs)) * runs
        assert below <= 3 * (level + 3 * math.sqrt(level / runs / 3)) * runs
        if not change:
            assert alarms > 0.5 * level * runs
            assert below > 3 * 0.7 * level * runs


def test_a_layer_may_lack_a_twentieth_of_its_noise_and_no_tenth() -> None:
    def alarms(share: float) -> list[str]:
        return LayerScores(("a",), np.array([2000]), np.array([share**2]), np.ones(1), 100).alarms(0.05)

    assert alarms(0.9) == ["the noise of a is at most 0.9 of the ledger's"]
    assert alarms(0.96) == []


def test_scores_are_kept_and_read_again(tmp_path: Path) -> None:
    audit = coins()
    hook, _ = audited_training(EDPSpec(**FULL), audit, epochs=4)
    audit.scores().save(tmp_path / "scores.npz")
    assert (tmp_path / "scores.npz").stat().st_size < 120_000
    again = Scores.load(tmp_path / "scores.npz")
    assert read_audit(again, private(hook.ledger), DELTA) == read_audit(audit.scores(), private(hook.ledger), DELTA)


@pytest.mark.slow
def test_a_sampler_that_draws_more_often_raises_an_alarm() -> None:
    found, stated = read(POISSON, drawn_at(1.5), batch=64, epochs=20)
    assert "the noise over the clip is at most" in str(found.audit_alarm)
    assert found.epsilon_read > stated


@pytest.mark.slow
def test_two_workers_are_read_together_and_a_silent_one_raises_an_alarm() -> None:
    for C, alarm in ((1.0, False), (0.5, True)):
        first, second = run_workers(one_worker_silent, 2, EDPSpec(**FULL | {"C": C}))
        assert np.array_equal(first[0].total, second[0].total)
        assert torch.equal(first[2], second[2])
        found = read_audit(first[0], private(first[1]), DELTA)
        assert (found.audit_alarm is not None) == alarm
        assert (found.noise_factor_at_most < 0.75) == alarm
        if not alarm:
            torch.testing.assert_close(first[2], audited_training(EDPSpec(**FULL | {"C": C}), None)[1])


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (FULL, {"epochs": 4}),
        (FULL | {"alpha_noise": "per_layer"}, {"batch": 60, "epochs": 2}),
        (FULL, {"micro_batches": 1, "epochs": 4}),
        (POISSON, {"batch": 64, "epochs": 2}),
        (POISSON, {"batch": 64, "micro_batches": 8, "epochs": 2}),
    ],
    ids=["full", "shuffled", "one-micro-batch", "poisson", "poisson-edp"],
)
def test_the_weights_are_the_same_bit_by_bit(settings: dict[str, Any], sizes: dict[str, Any]) -> None:
    (plain, without), (hook, with_audit) = (
        audited_training(EDPSpec(**settings), audit, **sizes) for audit in (None, coins())
    )
    assert torch.equal(without, with_audit)
    assert plain.ledger == hook.ledger


def test_bounds_hold_in_95_percent_of_sound_trainings_and_no_alarm_is_raised(
    long_story: None,
) -> None:
    """Scores as the mechanism's law has them: Gaussian noise, and Poisson draws."""
    rng, runs, m = np.random.default_rng(0), 300, 1000
    q, steps, z = 0.25, 80, 2.0
    for sampling in ("shuffle", "poisson"):
        rate = {"rate": q, "sampling": "poisson"} if sampling == "poisson" else {}
        mechanism = Mechanism(C=1.0, z=z, N=8, single_example=True, **rate)
        ledger = Ledger(entries=(LedgerEntry(epoch=0, steps=steps, mechanism=mechanism),))
        wrong = np.zeros(2)
        for _ in range(runs):
            coin, flip = rng.integers(0, 2, m).astype(bool), rng.permutation(m) < m // 2
            drawn = rng.binomial(steps, q, m) if sampling == "poisson" else np.full(m, steps)
            total = (rng.normal(0, z * math.sqrt(steps), m) + coin * drawn) / z**2
            least, most, alarm = read_noise(Scores(total, coin, flip, 0.95, steps), ledger)
            assert alarm is None
            wrong += most < 1, least > 1
        assert ((0.02 * runs < wrong) & (wrong < 0.09 * runs)).all()


def test_an_audit_goes_on_from_its_state() -> None:
    begun = coins()
    audited_training(EDPSpec(**FULL), begun, epochs=3)
    again = Audit(bytes([1] * 32), state=begun.state())
    for name in ("total", "coin", "flip", "quietest", "steps"):
        assert np.array_equal(getattr(again.scores(), name), getattr(begun.scores(), name))
    layers = begun.state()["layers"]
    assert layers["pairs"] == 1
    assert layers["last"] is not None
    with pytest.raises(ValueError, match="the audit scored 3 steps, and the ledger has 0"):
        audited_training(EDPSpec(**FULL), again)
    with pytest.raises(ValueError, match="the audit scored 3 steps, and the ledger has 0"):
        read_audit(again.scores(), Ledger(), DELTA)


@pytest.mark.parametrize(
    "settings", [{"z0": 0.0}, {"clip": "quantile"}, {"noise_correlation": "banded", "band": 2}], ids=str
)
def test_what_the_audit_does_not_read_is_refused_in_words(settings: dict[str, Any]) -> None:
    spec = EDPSpec(**settings)
    assert not_read(EDPSpec(**FULL)) is None
    with pytest.raises(UserError, match=str(not_read(spec)).split(",")[0]):
        audited_training(spec, coins(), batch=64)


def test_an_epoch_without_canaries_is_refused() -> None:
    with pytest.raises(HookUsageError, match="the audit has 10000 canaries, and the sampler drew none"):
        audited_training(EDPSpec(**FULL), coins(), canaries=0)


def test_samplers_draw_canaries_at_the_rate_of_the_examples_which_stay_the_same() -> None:
    key = bytes(32)
    for draw in (
        lambda m: shuffled_epoch(EXAMPLES, batch_size=64, micro_batches=64, workers=2, seed=1, epoch=3, canaries=m),
        lambda m: poisson_examples(EXAMPLES, batch_size=64, workers=2, key=key, epoch=3, canaries=m),
        lambda m: poisson_epoch(EXAMPLES, batch_size=64, micro_batches=8, workers=2, key=key, epoch=3, canaries=m),
    ):
        plain, audited = draw(0), draw(8000)
        same = [[[x.tolist() for x in share] for share in step] for step in plain]
        assert same == [[[x.tolist() for x in share] for share in step] for step in audited]
        planted_steps = list(audited.canaries)
        assert len(planted_steps) == 4
        for step in planted_steps:
            assert len(step) == 2
            assert all(abs(len(share) - 1000) < 150 for share in step)
        everybody = np.concatenate([share for step in planted_steps for share in step])
        assert everybody.min() >= 0
        assert everybody.max() < 8000
        if audited.sampling == "shuffle":
            assert sorted(everybody) == list(range(8000))
