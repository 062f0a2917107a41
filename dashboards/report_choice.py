"""Who chose the configuration that the report is about, what new seeds say of it, and which models are served."""

from __future__ import annotations

from dataclasses import dataclass

from mlflow.exceptions import MlflowException

from edp.spec import UserError
from sweeps.results.choice import named_point
from sweeps.results.confirmed import DECIDE, estimate, next_training
from sweeps.state.picks import Pick, final_trainings, read_picks
from sweeps.state.records import ConfirmedRun, Point
from sweeps.state.sweep import Sweep
from sweeps.tracking.run_tags import WEIGHTS
from sweeps.tracking.tracker import Tracker


@dataclass(frozen=True)
class Served:
    """A registered version of a model that the sweep led to."""

    uri: str
    what: str
    """Whose weights they are."""
    aliases: tuple[str, ...]
    digest: str
    """SHA-256 of the registered weights, as the version's tag has it; "" if the tag is missing."""
    epsilon: str
    """As the version's tag has it."""


def last_pick(sweep: Sweep) -> tuple[Pick, Point] | None:
    """The last choice of a person; None where there was none, or what was chosen is gone."""
    for pick in reversed(read_picks(sweep)):
        try:
            return pick, named_point(sweep, f"{pick.trial}@{pick.epoch}")
        except UserError:
            continue
    return None


def served_models(sweep: Sweep, tracker: Tracker) -> list[Served]:
    """The registered versions of what was picked, and of its final trainings; those that are gone are left out.

    A version that is another run's is gone too: where a model of that name was deleted, numbers begin anew.
    """
    found: dict[str, str] = {}
    runs: dict[str, str | None] = {}
    of_trials = {trial.number: trial.run_id for trial in sweep.trials()}
    for pick in read_picks(sweep):
        if pick.model is not None:
            found[pick.model] = f"trial {pick.trial} after epoch {pick.epoch}"
            runs[pick.model] = of_trials.get(pick.trial)
    for folder, origin in final_trainings(sweep).items():
        if origin.model is not None:
            found[origin.model] = f"the final training {folder.name} of trial {origin.trial}@{origin.epoch}"
    served = (_served(tracker, uri, what, runs.get(uri)) for uri, what in found.items())
    return [one for one in served if one is not None]


def _served(tracker: Tracker, uri: str, what: str, run_id: str | None) -> Served | None:
    name, _, number = uri.removeprefix("models:/").rpartition("/")
    try:
        version = tracker.client.get_model_version(name, number)
        aliases = {a: v for a, v in tracker.client.get_registered_model(name).aliases.items() if str(v) == number}
    except MlflowException:
        return None
    if run_id is not None and version.run_id != run_id:
        return None
    tags = version.tags
    return Served(uri, what, tuple(aliases), tags.get(WEIGHTS, ""), tags.get("epsilon", "not known"))


def survived(point: Point, runs: list[ConfirmedRun]) -> str:
    """What trainings with new seeds say of a point's SER, in a sentence; "" where there were none."""
    sers = [run.metrics["ser"] for run in runs if "ser" in run.metrics]
    if not sers:
        return ""
    if len(sers) < DECIDE:
        return f"{len(sers)} new seed{'s' if len(sers) > 1 else ''} decide nothing; {DECIDE} or more would."
    mean, ser = estimate(sers), point.metrics["ser"]
    words = (
        f"Over {len(sers)} new seeds its SER is {mean.mean:.2%}, 95 % interval {mean.lower:.2%} to {mean.upper:.2%}. "
    )
    # One training against another: the interval of their mean says nothing of where a single one lies.
    lower, upper = next_training(sers)
    one = f"of one more training {lower:.2%} to {upper:.2%}"
    if ser < lower:
        return (
            f"{words}The sweep's {ser:.2%} lies below that {one}: it was luck in part, and the mean is what to expect."
        )
    if ser > upper:
        return f"{words}The sweep's {ser:.2%} lies above that {one}: the configuration is better than it looked."
    return f"{words}The sweep's {ser:.2%} lies within that {one}: it has survived."
