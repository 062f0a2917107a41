"""Between Ray Tune's steps figures are sent, and of a trial that has ended Tune keeps next to nothing."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from ray import tune
from ray.tune.search import Searcher

from sweeps.engine.tune_callback import Housekeeping


class Asked(Searcher):
    """Three trials with a configuration of a megabyte, and a driver's answer to what is due."""

    def __init__(self) -> None:
        super().__init__(metric=None, mode=None)
        self.left, self.steps = 3, 0
        self.heard: list[float] = []

    def suggest(self, trial_id: str) -> Any:
        self.left -= 1
        return {"suggestion": np.ones(2**17)} if self.left >= 0 else Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.heard.append(result["figure"])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        assert not error

    def send_due(self) -> None:
        self.steps += 1

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


class Kept(tune.Callback):
    """Keep the trials of the last step."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.trials = trials


def test_tune_keeps_neither_configuration_nor_figures_of_a_trial_that_has_ended(
    ray_cluster: str, tmp_path: Any
) -> None:
    driver, kept = Asked(), Kept()

    def trial(config: dict[str, Any]) -> None:
        assert config["suggestion"].sum() == 2**17
        for figure in range(5):
            tune.report({"figure": figure})

    tune.Tuner(
        tune.with_resources(trial, {"cpu": 0.1}),
        tune_config=tune.TuneConfig(search_alg=driver, num_samples=3, max_concurrent_trials=2, reuse_actors=True),
        run_config=tune.RunConfig(
            callbacks=[Housekeeping(driver.send_due), kept],
            storage_path=str(tmp_path),
            verbose=0,
        ),
    ).fit()
    assert sorted(driver.heard) == sorted([*range(5)] * 3), "the searcher has had every figure first"
    assert driver.steps > 5
    assert [trial.status for trial in kept.trials] == ["TERMINATED"] * 3
    for one in kept.trials:
        about = {**vars(one.run_metadata), "checkpoint_manager": None}
        assert len(pickle.dumps((one.config, one.evaluated_params, one.last_result, about))) < 4_000
        assert "figure" not in one.last_result
