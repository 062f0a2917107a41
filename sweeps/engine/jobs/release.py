"""A recipe with `search.plan: proxy`: choose on a public corpus, and train once on the private one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edp.spec import UserError
from sweeps.config.loading import apply_overrides, load_config, load_recipe, write_yaml
from sweeps.config.recipe import Recipe
from sweeps.config.spending import of_training
from sweeps.config.target_epsilon import at_target
from sweeps.engine.dying import stop_requests
from sweeps.engine.finish import tell_total
from sweeps.engine.jobs.search import resume_sweep, start_sweep
from sweeps.engine.jobs.train import train
from sweeps.engine.prepare import private_sizes
from sweeps.engine.progress import Progress
from sweeps.engine.recorder import Recorder
from sweeps.results.headline import covers, private_configuration
from sweeps.store.lock import driver_lock, is_free
from sweeps.store.picks import RESULT, Trained, heading_of
from sweeps.store.plans import RELEASE, Plan, Release, plan_of, released
from sweeps.store.records import Point
from sweeps.store.storage import Place
from sweeps.store.sweep import Sweep
from sweeps.text.errors import one_line
from sweeps.text.figures import epsilon_text, labels_field, measured
from sweeps.text.paths import check_name, folder_name
from sweeps.text.signals import going_on_with
from sweeps.tracking.tracker import tracker_of
from trainables.config import TrialSpec
from trainables.records.files import digest, read_json, write_json


def run_proxy(
    recipe_name: str,
    overrides: list[str],
    *,
    name: str | None,
    storage: Path,
    tracking_uri: str | None,
    progress: Progress,
) -> dict[str, Any]:
    """Choose on the recipe's proxy corpus, and train the choice on its corpus once, with `edp.epsilon` at most.

    After a stop, `resume` goes on, and so does the same command with the same name. The steps that a stopped release
    had taken are in its ledger, so they count in ε.

    Returns:
        The plan's document: the sweep, its choice, and the released training with its ε.

    Raises:
        UserError: if the recipe, the corpora or the private corpus' budget do not allow it. Nothing was made then.
        SweepStopped: if it was stopped; it names the command that goes on.
    """
    stem, recipe = load_recipe(recipe_name, [*overrides, "search.plan=proxy"])
    name = check_name("name", name or folder_name(stem))
    plan, settings = _plan(recipe, progress), [*overrides, *_search_settings(recipe)]
    if is_free(storage / name):  # the search itself reads the proxy corpus alone
        recorder = Recorder(storage / name, recipe.baseline(), progress.say)
        recorder.check([of_training(at_target(recipe, plan.units), plan.units)], f"plan {name}")
    sweep = searched(Sweep(storage, name), recipe_name, settings, tracking_uri, progress, plan)
    if plan_of(sweep) != plan:  # the search is the same for another private corpus
        raise _other_settings(sweep)
    return release_chosen(sweep, plan, tracking_uri, progress)


def _plan(recipe: Recipe, progress: Progress) -> Plan:
    """Return the private part of a recipe with `search.plan: proxy`, checked before anything is made.

    Raises:
        UserError: if no noise meets the target ε on the private corpus, if the proxy corpus contains private utterances
            or has another task, or if the recipe does not fit the proxy corpus.
    """
    examples, users = private_sizes(recipe, progress.say)
    plan = Plan(recipe=recipe, examples=examples, users=users)
    at_target(recipe, plan.units)
    assert recipe.search.proxy is not None, "a recipe with this plan has one"
    try:
        Recipe.model_validate(apply_overrides(recipe.model_dump(mode="json"), _search_settings(recipe)))
    except ValidationError as error:
        where = f"with search.proxy = {recipe.search.proxy.name} as the corpus"
        raise UserError(f"search.plan = proxy: {where}, {one_line(error)}") from None
    return plan


def _search_settings(recipe: Recipe) -> list[str]:
    """Return the settings of the search. At a target ε only SER chooses; a release is a trial's last epoch."""
    assert recipe.search.proxy is not None, "a recipe with this plan has one"
    corpus = f"corpus={recipe.search.proxy.model_dump_json(exclude_none=True)}"  # of this search
    by_ser = ["search.objectives=[ser]"] if recipe.target is not None else []
    return [*by_ser, "search.keep_epochs=1", "search.plan=null", corpus, "search.proxy=null"]


def release_chosen(sweep: Sweep, plan: Plan, tracking_uri: str | None, progress: Progress) -> dict[str, Any]:
    """Train the best trial's configuration on the private corpus, once. A release that is there already is returned.

    Args:
        sweep: a finished sweep that chooses on a proxy corpus, with this plan.

    Returns:
        The plan's document.

    Raises:
        SweepStopped: if it was stopped.
    """
    before, point = released(sweep, plan), _chosen(sweep)
    spec = private_configuration(plan, point)
    heading = heading_of(sweep.name, point.trial, point.epoch, point.run_id)
    with (
        going_on_with(sweep.command("resume")),
        driver_lock(sweep.folder, sweep.name),
        stop_requests(sweep.folder),
    ):
        made = release(spec, sweep, f"{sweep.name}-release", tracking_uri, progress, heading)
    if before is None or before.run_id != made["run_id"]:
        folder = Path(made["output"])
        kept = Release(
            trial=point.trial,
            params=point.params | {"z0": spec.edp.z0, "training.epochs": spec.training.epochs},
            epochs=spec.training.epochs,
            metrics=made["metrics"],
            run_id=made["run_id"],
            folder=folder.name,
            digests={name: digest(folder / name) for name in ("model.pt", "ledger.json")},
        )
        write_json(sweep.folder / RELEASE, kept)
        tell_total(sweep, tracker_of(sweep, tracking_uri))
    about = {
        "plan": "proxy",
        "covers": covers(sweep),
        "delta": sweep.recipe.edp.delta,
        **labels_field(plan.recipe.corpus),
    }
    return {**about, "sweep": sweep.name, "chosen": point.public(), **made}


def release(
    spec: TrialSpec, sweep: Sweep, name: str, tracking_uri: str | None, progress: Progress, heading: str = ""
) -> dict[str, Any]:
    """Train a chosen configuration, go on with its stopped training, or return the result of its finished training.

    Args:
        heading: comment of the configuration's file, which names the sweep that the training counts in.

    Returns:
        `output`, `metrics`, `formal_guarantee`, `run_id` and `epsilon`.

    Raises:
        UserError: if a training of this name has other settings.
    """
    config, made = sweep.folder / f"{name}.yaml", Place(sweep.storage, f"train-{name}")
    if config.exists() and load_config(config, []) != spec:
        raise UserError(f"name: {config} was released with other settings; allowed: another --name or --storage")
    write_yaml(spec, config, heading)
    if not (made.folder / RESULT).is_file():
        train(config, [], storage=sweep.storage, tracking_uri=tracking_uri, progress=progress, name=name)
    result = read_json(made.folder / RESULT, Trained)
    about = {"output": str(made.folder), "run_id": result.run_id, "epsilon": result.metrics["epsilon"]}
    return about | measured(result.metrics)


def searched(
    sweep: Sweep,
    recipe: str,
    settings: list[str],
    tracking_uri: str | None,
    progress: Progress,
    plan: Plan | None = None,
) -> Sweep:
    """Run the sweep of this name to its end: start it, or go on with it. Return a finished one as it is.

    Args:
        plan: see `sweeps.engine.jobs.search.start_sweep`.

    Raises:
        UserError: if a sweep of this name has other settings.
    """
    if is_free(sweep.folder):
        return start_sweep(
            recipe,
            settings,
            name=sweep.name,
            storage=sweep.folder.parent,
            tracking_uri=tracking_uri,
            progress=progress,
            plan=plan,
        )
    sweep = Sweep.existing(sweep.folder.parent, sweep.name)
    if sweep.recipe != load_recipe(recipe, settings)[1]:
        raise _other_settings(sweep)
    return sweep if sweep.record.state == "finished" else resume_sweep(sweep, progress, tracking_uri)


def _other_settings(sweep: Sweep) -> UserError:
    return UserError(f"name: {sweep.name!r} is there with other settings; allowed: another --name or --storage")


def _chosen(sweep: Sweep) -> Point:
    """Return the last epoch of the trial with the lowest SER on the proxy corpus' test split, within `edp.epsilon`.

    The trials saw a public corpus, whose test split is larger than its validation split. What is reported is the test
    SER on the private corpus.
    """
    found = [point for trial in sweep.trials() for point in trial.points if point.last]
    if not found:
        raise UserError(f"name = {sweep.name!r} has no complete trial to choose from")
    most = sweep.recipe.edp.epsilon or math.inf  # of every trial where it is the target
    if not (within := [point for point in found if point.metrics["epsilon"] <= most]):
        least = epsilon_text(min(point.metrics["epsilon"] for point in found))
        raise UserError(
            f"edp.epsilon = {most:g}: no trial has so small an ε (the smallest: {least}), so nothing is released; "
            f"allowed: more trials, as {sweep.command('resume', '--trials', '10')}"
        )
    return min(within, key=lambda point: point.metrics["ser"])
