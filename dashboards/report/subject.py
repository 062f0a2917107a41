"""The model that a report is about, the registered versions, and the one advice on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from mlflow.exceptions import MlflowException

from edp.spec import UserError
from sweeps.config.loading import load_config
from sweeps.results.recommendation import largest_epsilon, picked_spec
from sweeps.results.snapshot import Snapshot
from sweeps.store.picks import RESULT, Origin, Pick, Trained, read_picks
from sweeps.store.records import Point, known_ledger
from sweeps.store.storage import train_line
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_text
from sweeps.tracking.run_tags import WEIGHTS
from sweeps.tracking.tracker import Tracker
from trainables.config import TrialSpec
from trainables.records.epochs import read_curve
from trainables.records.files import read_json_if_any


@dataclass(frozen=True)
class Served:
    """A registered version of a model of the sweep, or of a final training."""

    uri: str
    what: str
    """The training that made the weights."""
    aliases: tuple[str, ...]
    digest: str
    """SHA-256 of the registered weights, from the version's tag; "" if the tag is missing."""
    epsilon: str
    """ε, from the version's tag."""
    run_id: str
    choice: str
    """What chose the configuration, from the version's tag."""


@dataclass(frozen=True)
class Subject:
    """The model that a report is about."""

    kind: str
    """The word before its name: `Served`, `Registered`, `Final training`, `Released`, `Picked`, `Recommended`, …"""
    model: Point
    """Its figures, ledger, folder and run. Of a final training, the trial and the epoch are those of its settings."""
    settings: Point
    """The point of the sweep that has its settings; of most subjects, the model itself."""
    spec: TrialSpec
    """The configuration that trained it."""
    choice: str
    """What chose the configuration, and whether ε covers that."""
    is_release: bool = False
    """True for the released training of a sweep that chooses on a proxy corpus."""
    pick: Pick | None = None
    """The choice of its settings by a person."""
    training: str = ""
    """The folder of a final training, by name."""
    trained: Trained | None = None
    served: Served | None = None
    """Its registered version with the most important alias."""

    @property
    def name(self) -> str:
        """The model's name in a sentence."""
        settings = f"trial {self.settings.name}"
        if self.training:
            return f"the final training {self.training} of {settings}"
        return f"the settings of {settings}" if self.is_release else settings


def subject_of(found: Snapshot, served: Sequence[Served]) -> Subject:
    """Return the model that a report is about.

    This is the champion among the registered versions; else the latest model that a person picked or trained; else the
    released model of a sweep that chooses on a proxy corpus; else the point that `edp-sweep pick` would choose.

    Raises:
        UserError: if the sweep has no complete trial.
    """
    by_uri = {one.uri: one for one in served}
    made = sorted(_candidates(found), key=lambda one: one[0])  # stable: of one second, trainings come last
    subjects = [replace(subject, served=by_uri.get(uri or "")) for _, uri, subject in made]
    champions = [one for one in subjects if one.served is not None and "champion" in one.served.aliases]
    if subjects:
        last = (champions or subjects)[-1]
        if last.served is not None:
            return replace(last, kind="Served" if champions else "Registered")
        return last
    kind = "Recommended" if found.recommended().point else "Not recommended, but shown"
    kind = "Released" if found.release is not None else kind
    return _of_point(found, kind, found.choose()[0])


def _candidates(sweep: Snapshot) -> list[tuple[str, str | None, Subject]]:
    """Return the models that a person picked or trained, each with its time and the URI of its registered version."""
    release, picks = sweep.release, read_picks(sweep.sweep)
    found: list[tuple[str, str | None, Subject]] = []
    for pick in picks:
        if (point := _picked(sweep, pick)) is not None:
            found.append((pick.at, pick.model, _of_point(sweep, "Picked", point, pick)))
    for folder, origin in sweep.final.items():
        trained = read_json_if_any(folder / RESULT, Trained)
        if trained is None or (release is not None and folder == release.folder):
            continue
        try:
            settings = sweep.named(f"{origin.trial}@{origin.epoch}")
        except UserError:
            continue
        found.append((trained.at, origin.model, _of_training(folder, origin, trained, settings, picks)))
    return found


def _picked(sweep: Snapshot, pick: Pick) -> Point | None:
    """Return the model of a pick; None if its point is gone, or is a trial on a proxy corpus."""
    if (release := sweep.release) is not None:
        return release if (pick.trial, pick.epoch) == (release.trial, release.epoch) else None
    try:
        return sweep.named(f"{pick.trial}@{pick.epoch}")
    except UserError:
        return None


def _of_point(sweep: Snapshot, kind: str, point: Point, pick: Pick | None = None) -> Subject:
    choice = sweep.choice(pick.limits if pick else ())
    is_release = point.recipe.corpus != sweep.recipe.corpus
    return Subject(kind, point, point, picked_spec(point), choice, is_release, pick)


def _of_training(folder: Path, origin: Origin, trained: Trained, settings: Point, picks: Sequence[Pick]) -> Subject:
    pick = next((one for one in reversed(picks) if (one.trial, one.epoch) == (origin.trial, origin.epoch)), None)
    spec = load_config(folder / "config.yaml", [])
    model = replace(
        settings,
        metrics=trained.metrics,
        run_id=trained.run_id,
        folder=folder,
        ledger=known_ledger(folder, read_curve(folder)),
        digests={},
    )
    return Subject("Final training", model, settings, spec, trained.choice, False, pick, folder.name, trained)


def served_models(sweep: Snapshot, tracker: Tracker) -> list[Served]:
    """Return the registered versions of picked models and of their final trainings, champions first.

    Deleted versions are left out. A version of another run counts as deleted: its number was given again after the
    model's deletion.
    """
    found: dict[str, str] = {}
    runs: dict[str, str | None] = {}
    of_trials = {trial.number: trial.run_id for trial in sweep.trials}
    release = sweep.release
    if release is not None:
        of_trials[release.trial] = release.run_id
    for pick in read_picks(sweep.sweep):
        if pick.model is not None:
            its_own = release is None or pick.trial != release.trial
            found[pick.model] = f"trial {pick.trial} after epoch {pick.epoch}" if its_own else "the released training"
            runs[pick.model] = of_trials.get(pick.trial)
    for folder, origin in sweep.final.items():
        if origin.model is not None:
            found[origin.model] = f"the final training {folder.name} of trial {origin.trial}@{origin.epoch}"
    served = (_served(tracker, uri, what, runs.get(uri)) for uri, what in found.items())
    return sorted((one for one in served if one is not None), key=lambda one: "champion" not in one.aliases)


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
    return Served(
        uri,
        what,
        tuple(aliases),
        tags.get(WEIGHTS, ""),
        tags.get("epsilon", "not known"),
        str(version.run_id),
        tags.get("choice", "not recorded"),
    )


class Advice(NamedTuple):
    """The one advice of a report."""

    text: str
    command: str = ""
    """The command to follow it."""
    is_fine: bool = False
    """True if nothing in the sweep's record speaks against the model."""


def advice_on(sweep: Sweep, subject: Subject, *, small: bool, violations: Sequence[Mapping[str, str]]) -> Advice:
    """Return the advice on the model of a report: its first objection, or the next step.

    Args:
        small: True if δ is known to be small (`sweeps.text.figures.delta_words`).
        violations: those that `edp-sweep verify` found.
    """
    epsilon = subject.model.metrics["epsilon"]
    most = largest_epsilon(sweep.recipe.edp.epsilon)
    storage, uri = sweep.folder.parent, sweep.record.tracking_uri
    train = train_line("picked.yaml", "--on", "train+valid", storage=storage, tracking_uri=uri)
    if violations:
        return Advice("Do not release it: a step of its configuration does not do what its ledger says (see below).")
    if epsilon > most:
        found = f"Its ε is {epsilon_text(epsilon)}, not at most {most:g}"
        return Advice(f"Do not release it: it has no guarantee. {found}.")
    if not small:
        return Advice("Before you release it, decide whether this δ is small enough for so much data.")
    fine = "Nothing in the sweep's record speaks against"
    if subject.training or subject.served is not None:
        return Advice(f"{fine} a release of its weights, and of them alone.", is_fine=True)
    if subject.is_release:
        register = sweep.command("pick", "--register", "MODEL")
        return Advice(f"{fine} a release of its weights, and of them alone. Register it:", register, is_fine=True)
    return Advice(f"{fine} these settings. Train the final model:", train, is_fine=True)
