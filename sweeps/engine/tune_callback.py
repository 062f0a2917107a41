"""What Ray Tune calls while trials run: the driver sends what is due, and ended trials are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray import tune

_NEEDED = {"training_iteration", "node_ip"}


class Housekeeping(tune.Callback):
    """Sends what is due to MLflow, and empties what Tune keeps of a trial until the search ends.

    Tune keeps the configuration, the last result, and statistics of every number in it: 45 KiB a trial.

    Args:
        send_due: called after each step of Tune; sends the figures that have waited.
    """

    def __init__(self, send_due: Callable[[], None]) -> None:
        self._send_due = send_due

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Send the figures of running trials that have waited."""
        self._send_due()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Empty a result that the driver has read, before Tune keeps it."""
        for name in result.keys() - _NEEDED:
            del result[name]

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Empty the configuration of a trial that has ended: no process will ask for it."""
        trial.config.clear()
        trial.evaluated_params.clear()
