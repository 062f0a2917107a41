"""Correlated noise in recipes and on the command line: searched, priced, refused in one line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from edp.accounting.epsilon import epsilon
from edp.spec import UserError
from sweeps.commands.app import app
from sweeps.config.loading import load_recipe
from sweeps.config.target_epsilon import ConfigurationRefused, planned, resolve

SEARCHED = ["edp.decay=none", "space.edp.noise_correlation.choice=[none, banded]"]


def test_it_is_searched_and_both_meet_a_target_at_the_same_noise() -> None:
    _, recipe = load_recipe("atis_clc", [*SEARCHED, "edp.epsilon=8"])
    settled = [
        resolve(recipe, {"C": 1.0, "edp.noise_correlation": kind, "decay": "none"}, 2_627)
        for kind in ("none", "banded")
    ]
    assert settled[0].params["z0"] == settled[1].params["z0"]
    trials = [one.spec for one in settled]
    assert [trial.edp.noise_correlation for trial in trials] == ["none", "banded"]
    ledgers = [planned(trial, 2_627) for trial in trials]
    assert epsilon(ledgers[0], 5e-4) == epsilon(ledgers[1], 5e-4) == pytest.approx(8, abs=1e-3)
    assert [ledger.entries[0].mechanism.band for ledger in ledgers] == [1, 16]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["edp.noise_correlation=banded"], "decay = linear; allowed: decay = none"),
        ([*SEARCHED, "edp.sampling=poisson"], "sampling = poisson; allowed: sampling = shuffle"),
        (["edp.noise_correlation=banded", "edp.clip=quantile"], "clip = quantile; allowed: clip = fixed or automatic"),
        (["edp.noise_correlation=correlated"], "edp.noise_correlation"),
    ],
)
def test_what_has_no_price_is_refused_in_one_line(settings: list[str], says: str) -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("atis_clc", settings)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_trial_whose_band_is_longer_than_an_epoch_is_refused_before_it_starts() -> None:
    _, recipe = load_recipe("atis_clc", ["edp.decay=none", "edp.noise_correlation=banded", "edp.band=42"])
    params = {"C": 1.0, "z0": 0.5, "decay": "none"}
    assert resolve(recipe, params, 2_627).params["z0"] == 0.5
    with pytest.raises(ConfigurationRefused, match=r"edp\.band = 42 is more than the steps of an epoch, 41"):
        resolve(recipe, params, 41 * 64)


def _epsilon(*options: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["epsilon", "--z0", "0.7", "--epochs", "10", "--json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_prices_it_as_independent_noise() -> None:
    independent = _epsilon()
    assert _epsilon("--rate", "0.1", "--noise-correlation", "banded") == independent
    assert _epsilon("--rate", "0.1", "--noise-correlation", "banded", "--band", "10") == independent


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--rate", "0.1", "--band", "11"], "edp.band = 11 is more than the steps of an epoch, 10"),
        (["--sampling", "poisson", "--rate", "0.1"], "sampling = poisson"),
        (["--decay", "linear", "--tau", "0.1"], "decay = linear"),
    ],
)
def test_the_command_refuses_what_has_no_price(options: list[str], says: str) -> None:
    given = ["epsilon", "--z0", "0.7", "--epochs", "10", "--noise-correlation", "banded", *options]
    result = CliRunner().invoke(app, given)
    assert says in str(result.exception)
    assert isinstance(result.exception, UserError)
