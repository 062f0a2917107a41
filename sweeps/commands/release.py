"""`edp-sweep run --plan`: search, choose and release a model in one of the ways that `plan` lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edp.spec import UserError
from sweeps.commands.console import out
from sweeps.commands.plan import PROXY, priced_ways, runnable, search_settings
from sweeps.commands.stopping import going_on_with
from sweeps.config.canaries import check_canaries
from sweeps.config.loading import load_config, load_recipe, write_yaml
from sweeps.config.recipe import Recipe
from sweeps.run.progress import Progress
from sweeps.store.lock import is_free
from sweeps.store.storage import chosen_tracking_uri
from sweeps.text.figures import (
    LABELS_PUBLIC,
    epsilon_digits,
    labels_field,
    measured,
    params_text,
)
from sweeps.text.paths import check_name, folder_name
from sweeps.text.terminal import print_line
from trainables.config import CanariesSpec, TrialSpec
from trainables.records.files import atomic_write, digest, read_json_if_any

if TYPE_CHECKING:
    from sweeps.store.plans import Plan
    from sweeps.store.records import Point
    from sweeps.store.sweep import Sweep


def run_plan(
    recipe_name: str,
    overrides: list[str],
    way_name: str,
    *,
    name: str | None,
    storage: Path,
    tracking_uri: str | None,
    progress: Progress,
    part_of: str | None = None,
) -> dict[str, Any]:
    """Search, choose and release in a way that `plan` lists, within the recipe's `edp.epsilon`.

    After a stop, `resume` goes on, and so does the same command with the same name. The steps that a stopped release
    had taken are in its ledger, so they count in ε.

    Args:
        way_name: a way's name, or `cheapest`: the cheapest of the ways that run.
        part_of: see `sweeps.commands.start.start_sweep`.

    Returns:
        The document that `edp-sweep run --plan --json` prints.

    Raises:
        UserError: for a way that the recipe does not allow. Nothing was made then.
        SweepStopped: if it was stopped; it names the command that goes on.
    """
    from sweeps.results.cost import epsilon_of_sweep
    from sweeps.store.activities import CHOSEN
    from sweeps.store.plans import Plan, plan_of
    from sweeps.store.sweep import Sweep

    if way_name == "stand_in":
        raise UserError("plan = 'stand_in': it is called proxy now; allowed: --plan proxy")
    stem, recipe = load_recipe(recipe_name, overrides)
    name = check_name("name", name or folder_name(stem))
    if recipe.edp.epsilon is None:
        raise UserError("epsilon: the recipe has no edp.epsilon; allowed: --set edp.epsilon=8")
    priced, examples, users = priced_ways(recipe, progress.say)
    runs, refused = runnable(recipe, priced)
    allowed = ", ".join((*runs, "cheapest")) if runs else "none"
    if way_name in refused:
        raise UserError(f"plan = {way_name!r}: {refused[way_name]}; ways that run here: {allowed}")
    if way_name not in (*runs, "cheapest") or not runs:
        reasons = [] if runs else [f"; {other}: {why}" for other, why in refused.items()]
        if recipe.search.proxy is None:
            reasons.append("; proxy: needs search.proxy, a public corpus")
        raise UserError(f"plan = {way_name!r}: allowed for this recipe: {allowed}{''.join(reasons)}")
    way = runs[way_name] if way_name in runs else next(iter(runs.values()))
    settings = [*overrides, *search_settings(way, recipe)]
    plan = None
    if way.name == PROXY:
        # Canaries audit the trials. The release is not trained on made-up utterances.
        private = recipe.model_copy(update={"canaries": CanariesSpec()})
        plan = Plan(recipe=private, examples=examples, users=users)
        if is_free(storage / name):  # the search itself reads the proxy corpus alone
            _check_budget(recipe, plan.units, f"plan {name}", storage, tracking_uri, progress)
    sweep = searched(Sweep(storage, name), recipe_name, settings, tracking_uri, progress, part_of, plan)
    if plan is not None:
        if plan_of(sweep) != plan:  # the search is the same for another private corpus
            raise _other_settings(sweep)
        return release_chosen(sweep, plan, tracking_uri, progress, part_of)
    point = _chosen(sweep, public=False)
    if not sweep.recipe.search.secret:  # which keeps its released trial in a folder of its own
        with atomic_write(sweep.folder / CHOSEN) as partial:
            partial.write_text(json.dumps({"plan": way.name, "trial": point.trial}))
    return {
        **_about(sweep, way.name, way.covers, point),
        "epsilon": epsilon_of_sweep(sweep, sweep.trials()),
        "output": str(point.folder),
        "run_id": point.run_id,
        **measured(point.metrics),
    }


def _check_budget(
    recipe: Recipe, units: int, what: str, storage: Path, tracking_uri: str | None, progress: Progress
) -> None:
    """Raise if the account of the private corpus would pass its budget with one training at the recipe's target.

    Raises:
        UserError: with the account, the cost and the budget.
    """
    from sweeps.config.spending import of_trials
    from sweeps.run.corpus_budget import open_budget

    uri = chosen_tracking_uri(tracking_uri, storage)
    budget = open_budget(recipe.corpus, storage, uri, progress.say)
    if budget is not None:
        budget.check(of_trials(recipe, units, 1) or [], what)


def release_chosen(
    sweep: Sweep, plan: Plan, tracking_uri: str | None, progress: Progress, part_of: str | None = None
) -> dict[str, Any]:
    """Train the best trial's configuration on the private corpus, once. A release that is there already is returned.

    Args:
        sweep: a finished sweep that chooses on a proxy corpus, with this plan.
        part_of: see `sweeps.commands.start.start_sweep`.

    Returns:
        The document that `edp-sweep run --plan --json` prints.

    Raises:
        SweepStopped: if it was stopped.
    """
    from sweeps.commands.finish import tell_total
    from sweeps.results.headline import COVERS, private_configuration
    from sweeps.store.picks import heading_of
    from sweeps.store.plans import Release, released
    from sweeps.tracking.tracker import Tracker

    before, point = released(sweep), _chosen(sweep, public=True)
    spec = private_configuration(plan, point)
    heading = heading_of(sweep.name, point.trial, point.epoch, point.run_id)
    with going_on_with(part_of or sweep.command("resume")):
        made = release(spec, sweep, f"{sweep.name}-release", tracking_uri, progress, heading)
    if before is None or before.run_id != made["run_id"]:
        folder = sweep.folder.parent / Path(made["output"]).name
        Release(
            trial=point.trial,
            params=point.params | {"z0": spec.edp.z0, "training.epochs": spec.training.epochs},
            epochs=spec.training.epochs,
            metrics=made["metrics"],
            run_id=made["run_id"],
            folder=folder.name,
            digests={name: digest(folder / name) for name in ("model.pt", "ledger.json")},
        ).write(sweep.folder)
        uri = tracking_uri or sweep.record.tracking_uri
        tell_total(sweep, Tracker(uri, sweep.record.recipe, sweep.folder.parent / "mlflow-artifacts", new=False))
    return _about(sweep, PROXY, COVERS, point) | made


def _about(sweep: Sweep, way: str, covers: str, point: Point) -> dict[str, Any]:
    """Return the part of a plan's document that every way has."""
    from sweeps.store.plans import private_corpus

    about = {"plan": way, "covers": covers, "delta": sweep.recipe.edp.delta, **labels_field(private_corpus(sweep))}
    return about | {"sweep": sweep.name, "chosen": point.public()}


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
    from sweeps.commands.train import train

    config, result = sweep.folder / f"{name}.yaml", sweep.folder / f"{name}.json"
    if config.exists() and load_config(config, []) != spec:
        raise UserError(f"name: {config} was released with other settings; allowed: another --name or --storage")
    write_yaml(spec, config, heading)
    release = read_json_if_any(result, dict[str, Any])
    if release is None:
        release = train(
            config, [], storage=sweep.folder.parent, tracking_uri=tracking_uri, progress=progress, name=name
        )
        with atomic_write(result) as partial:
            partial.write_text(json.dumps(release))
    found = {"output": release["output"], "run_id": release["run_id"], **measured(release["metrics"])}
    return found | {"epsilon": release["metrics"]["epsilon"]}


def searched(
    sweep: Sweep,
    recipe: str,
    settings: list[str],
    tracking_uri: str | None,
    progress: Progress,
    part_of: str | None = None,
    plan: Plan | None = None,
) -> Sweep:
    """Run the sweep of this name to its end: start it, or go on with it. Return a finished one as it is.

    Args:
        part_of: see `sweeps.commands.start.start_sweep`.
        plan: see `sweeps.commands.start.start_sweep`.

    Raises:
        UserError: if a sweep of this name has other settings.
    """
    from sweeps.commands.start import resume_sweep, start_sweep
    from sweeps.store.sweep import Sweep

    if is_free(sweep.folder):
        return start_sweep(
            recipe,
            settings,
            name=sweep.name,
            storage=sweep.folder.parent,
            tracking_uri=tracking_uri,
            progress=progress,
            part_of=part_of,
            plan=plan,
        )
    sweep = Sweep.existing(sweep.folder.parent, sweep.name)
    check_canaries(sweep.recipe)
    if sweep.recipe != load_recipe(recipe, settings)[1]:
        raise _other_settings(sweep)
    return sweep if sweep.record.state == "finished" else resume_sweep(sweep, progress, tracking_uri, part_of)


def _other_settings(sweep: Sweep) -> UserError:
    return UserError(f"name: {sweep.name!r} is there with other settings; allowed: another --name or --storage")


def _chosen(sweep: Sweep, *, public: bool) -> Point:
    """Return the last epoch of the trial with the lowest SER.

    Args:
        public: True if the trials saw a public corpus. Then its test split chooses, which is larger than its validation
            split: what is reported is the test SER on the private corpus.
    """
    found = [point for trial in sweep.trials() for point in trial.points if point.last]
    if not found:
        raise UserError(f"name = {sweep.name!r} has no complete trial to choose from")
    return min(found, key=lambda point: point.metrics["ser"] if public else point.deciding["ser"])


def show_release(found: dict[str, Any]) -> None:
    """Print the trial that a plan without a proxy corpus has chosen, which is the released model."""
    chosen = params_text({key: value for key, value in found["chosen"]["params"].items() if key != "z0"})
    print_line(out, f"chosen of sweep {found['sweep']}: trial {found['chosen']['number']} ({chosen})")
    seen = found["metrics"]
    valid = f"validation SER {seen['valid_ser']:.1%}, " if "valid_ser" in seen else ""
    print_line(out, f"released: {found['output']}, {valid}test SER {seen['ser']:.1%}")
    total = f"ε = {epsilon_digits(found['epsilon'], 4)} at δ = {found['delta']:g}, of search and release together"
    labels = f"; {LABELS_PUBLIC}" if found.get("labels_taken_to_be_public") else ""
    print_line(out, f"{total}; covers {found['covers']}{labels}")
