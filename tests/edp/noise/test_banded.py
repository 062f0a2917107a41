"""Correlated noise: its sensitivity, its distribution, its price, and who is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from edp.accounting.epsilon import epsilon, epsilon_curve
from edp.accounting.gaussian import gaussian_epsilon
from edp.ledger import Ledger, LedgerEntry, planned_ledger
from edp.mechanism import Mechanism
from edp.noise.banded import band_of, coefficients, column_norm, marginal_std
from edp.noise.source import noise_source
from edp.spec import EDPSpec, UserError
from tests.support.edp.banded_workers import hook_training, literal_training, resumed_training, strategy
from tests.support.workers import run_workers

PLAN = {"micro_batches": 8, "steps_per_epoch": 20, "rate": 0.05, "single_example": False}


def largest_squared_move(C: np.ndarray, apart: int) -> float:
    """Over all sets of steps at least `apart` from each other, and all signs, of unit moves in one direction: the
    worst case of vectors too, since ‖CG‖² is convex in the moves G and their Gram matrix is largest for equal ones."""
    n, most = C.shape[1], 0.0
    for size in range(1, -(-n // apart) + 1):
        for steps in itertools.combinations(range(n), size):
            if all(later - earlier >= apart for earlier, later in itertools.pairwise(steps)):
                for signs in itertools.product((1, -1), repeat=size):
                    most = max(most, float(np.square(C[:, steps] @ signs).sum()))
    return most


@pytest.mark.parametrize(("steps", "apart", "band"), [(12, 3, 3), (12, 4, 4), (12, 4, 2), (10, 2, 2), (11, 4, 3)])
def test_a_unit_moves_a_run_by_the_square_root_of_its_participations_whatever_they_are(
    steps: int, apart: int, band: int
) -> None:
    participations = -(-steps // apart)
    most = largest_squared_move(strategy(steps, band), apart)
    assert most <= participations + 1e-12
    # Exact but for columns that the end of the run cuts off: none where another band fits in behind the last one.
    assert largest_squared_move(strategy(steps + band, band)[:, :steps], apart) == pytest.approx(participations)


def test_a_band_that_reaches_the_next_participation_costs_more() -> None:
    assert largest_squared_move(strategy(12, 4), apart=3) > 4.1


@pytest.mark.parametrize("cuts", [(12,), (8, 4), (4, 4, 4), (3, 9), (7, 2, 3)])
def test_a_run_that_starts_anew_on_the_way_costs_no_more(cuts: tuple[int, ...]) -> None:
    C, place = np.zeros((12, 12)), 0
    for cut in cuts:
        C[place : place + cut, place : place + cut] = strategy(cut, 4)
        place += cut
    assert largest_squared_move(C, apart=4) <= 3 + 1e-12


@pytest.mark.parametrize("band", [2, 5, 16, 60])
def test_the_coefficients_are_a_square_root_and_fall(band: int) -> None:
    c = np.array(coefficients(band))
    # Of 1/((1 - x)(1 - 0.7 x)): the sums of 0.7^j.
    np.testing.assert_allclose(np.convolve(c, c)[:band], np.cumsum(0.7 ** np.arange(band)))
    assert (np.diff(c) < 0).all()
    assert np.abs(np.roots(c[::-1])).min() > 1


def filtered(band: int, steps: int, size: int) -> torch.Tensor:
    """Return the noise of so many steps for σ = 1, (steps, size)."""
    source = noise_source([torch.empty(size)], range(1), seed=band, band=band)
    noise = torch.zeros(steps, size)
    for step in range(steps):
        source.add_(noise[step], [noise[step]], 1.0, step, clip_factor=None, stretch=1.0)
    return noise


@pytest.mark.parametrize("band", [2, 4])
def test_the_noise_has_the_covariance_of_the_theory(band: int) -> None:
    steps, size = 12, 200_000
    noise = filtered(band, steps, size).double()
    found = (noise @ noise.T / size).numpy()
    C = strategy(steps, band)
    expected = np.linalg.inv(C.T @ C)
    errors = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / size)
    assert np.abs((found - expected) / errors).max() < 5


@pytest.mark.parametrize("band", [1, 2, 4, 16, 100])
def test_the_noise_of_one_step_grows_to_the_stated_std(band: int) -> None:
    steps = 400
    inverse = np.linalg.inv(strategy(steps, band))
    std = np.linalg.norm(inverse, axis=1)
    assert (np.diff(std) >= -1e-12).all()
    assert std[0] == pytest.approx(column_norm(band))
    assert std[-1] == pytest.approx(marginal_std(band), rel=2e-3)


SPECS = [
    EDPSpec(C=0.1, z0=0.5, reproducible_noise=7, noise_correlation="banded", band=3),
    EDPSpec(C=0.1, z0=0.5, reproducible_noise=7, noise_correlation="banded", band=4, alpha_noise="per_layer"),
    EDPSpec(C=0.1, z0=0.5, reproducible_noise=7, noise_correlation="banded", clip="automatic"),
]


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.band}-{spec.alpha_noise}-{spec.clip}")
def test_the_hook_agrees_with_the_literal_algorithm_for_every_number_of_workers(spec: EDPSpec) -> None:
    literal = literal_training(spec, epochs=2)
    for workers in (1, 2):
        for weights, ledger in run_workers(hook_training, workers, spec, 2):
            torch.testing.assert_close(weights, literal, rtol=1e-5, atol=1e-6)
            assert [(entry.steps, entry.mechanism.band) for entry in ledger.entries] == [(4, spec.band or 4)] * 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_secret_noise_of_all_workers_adds_up_to_that_of_the_theory(workers: int) -> None:
    """The gradients count for nothing, so two runs differ by the sums of their noise over an epoch."""
    spec = EDPSpec(C=1e-8, z0=1e8, noise_correlation="banded", band=3)
    one, other = (run_workers(hook_training, workers, spec, 1)[0][0].double() for _ in range(2))
    sums = np.linalg.norm(np.linalg.inv(strategy(4, 3)).sum(axis=0))
    assert float((one - other).std()) == pytest.approx(0.1 * sums / 2 * math.sqrt(2), rel=5 / math.sqrt(2 * len(one)))


@pytest.mark.slow
def test_a_resumed_run_starts_a_new_block_and_has_the_ledger_of_a_whole_one() -> None:
    weights, ledger = run_workers(resumed_training, 1, SPECS[0], 2)[0]
    torch.testing.assert_close(weights, literal_training(SPECS[0], epochs=2, blocks=(4, 4)), rtol=1e-5, atol=1e-6)
    assert ledger == run_workers(hook_training, 1, SPECS[0], 2)[0][1]


@pytest.mark.parametrize("alpha", ["fixed", "none", "public", "private"])
@pytest.mark.parametrize("single", [False, True])
def test_it_costs_what_independent_noise_does(alpha: str, single: bool) -> None:
    plan = {**PLAN, "single_example": single}
    ledgers = [
        planned_ledger(EDPSpec(z0=2.0, alpha=alpha, noise_correlation=kind), epochs=10, **plan)
        for kind in ("none", "banded")
    ]
    assert epsilon(ledgers[0], 1e-5) == epsilon(ledgers[1], 1e-5) > 0
    assert epsilon_curve(ledgers[0], 1e-5) == epsilon_curve(ledgers[1], 1e-5)
    assert Ledger.model_validate_json(ledgers[1].model_dump_json()) == ledgers[1]


@pytest.mark.parametrize(
    ("single", "unit", "move"), [(False, "example", 2), (True, "example", 1), (False, "micro_batch", 1)]
)
def test_the_price_is_that_of_the_worst_unit_of_a_literal_strategy(single: bool, unit: str, move: int) -> None:
    """An example in a micro-batch of several can turn its mean round, and so move each of its steps by 2C."""
    spec = EDPSpec(C=0.5, z0=4.0, unit=unit, noise_correlation="banded", band=4)
    ledger = planned_ledger(spec, epochs=3, micro_batches=2, steps_per_epoch=4, rate=0.25, single_example=single)
    assert {entry.mechanism.sensitivity() for entry in ledger.entries} == {move * spec.C}
    C = strategy(12 + 4, 4)[:, :12]  # the run goes on for longer
    mu = move * math.sqrt(largest_squared_move(C, apart=4)) / spec.z0
    assert epsilon(ledger, 1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5))


def ledger_of(steps: list[int], **changes: object) -> Ledger:
    m = Mechanism(C=1.0, z=2.0, N=1, rate=0.25, correlation="banded", band=3).model_copy(update=changes)
    return Ledger(entries=tuple(LedgerEntry(epoch=t, steps=n, mechanism=m) for t, n in enumerate(steps)))


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        (ledger_of([4, 4], sampling="poisson"), "sampling = poisson"),
        (ledger_of([4, 4], clip="quantile", count_std=5.0), "clip = quantile"),
        (ledger_of([4, 4], band=5), "band = 5"),
        (ledger_of([2, 4]), "within the band"),
        (ledger_of([4, 5]), "an epoch of 5 steps"),
        (Ledger(entries=(*ledger_of([4]).entries, *ledger_of([4, 4], z=1.0).entries[1:])), "changes on the way"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_executed_otherwise_has_no_price(ledger: Ledger, message: str) -> None:
    for price in (epsilon, epsilon_curve):
        with pytest.raises(UserError, match=message):
            price(ledger, 1e-5)


@pytest.mark.parametrize("steps", [[4, 4], [3, 4], [4, 1], [1]])
def test_a_run_that_ended_early_has_a_price(steps: list[int]) -> None:
    independent = ledger_of(steps, correlation="none", band=1)
    assert epsilon(ledger_of(steps), 1e-5) == epsilon(independent, 1e-5)


@pytest.mark.parametrize(
    "setting",
    [
        {"sampling": "poisson"},
        {"noise": "paper"},
        {"alpha": "paper"},
        {"clip": "quantile"},
        {"decay": "linear", "tau": 0.1},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_what_has_no_price_is_refused_in_one_line(setting: dict[str, object]) -> None:
    (name, value), *_ = setting.items()
    with pytest.raises(
        ValidationError, match=f"noise_correlation = banded has no price with {name} = {value}; allowed"
    ):
        EDPSpec.model_validate({"noise_correlation": "banded", **setting})
    EDPSpec.model_validate(setting)


def test_a_band_is_at_most_an_epoch() -> None:
    spec = EDPSpec(noise_correlation="banded", band=5)
    assert band_of(spec, rate=0.2) == 5
    assert band_of(spec, rate=64 / 300) == 5, "the last step of an epoch is a smaller one"
    with pytest.raises(UserError, match=r"edp\.band = 5 is more than the steps of an epoch, 4.*allowed: 1 to 4"):
        planned_ledger(spec, epochs=3, **{**PLAN, "rate": 0.25})
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        EDPSpec(noise_correlation="banded", band=0)


@pytest.mark.parametrize(("rate", "band"), [(1.0, 1), (0.2, 5), (0.01, 16)])
def test_the_band_is_an_epoch_or_sixteen_steps_where_none_is_given(rate: float, band: int) -> None:
    assert band_of(EDPSpec(noise_correlation="banded"), rate) == band
    assert band_of(EDPSpec(), rate) == 1


def test_the_ledger_states_the_noise_of_one_step() -> None:
    stated = [
        planned_ledger(EDPSpec(noise_correlation=kind), epochs=1, **PLAN).entries[0].noise_std
        for kind in ("none", "banded")
    ]
    assert stated[1] == pytest.approx(stated[0] * marginal_std(16))
