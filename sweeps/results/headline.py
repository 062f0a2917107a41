"""The released model of a sweep that chooses on a proxy corpus, in a few lines that have one ε for everything."""

from __future__ import annotations

import math

from edp.spec import UserError
from sweeps.config.target_epsilon import ConfigurationRefused, resolve
from sweeps.results.recommendation import picked_spec
from sweeps.results.snapshot import Snapshot
from sweeps.store.plans import Plan
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import FIGURES, enumerated, epsilon_text, labels_remark
from trainables.config import TrialSpec

COVERS = "the choice and the release; the check of public corpora for private utterances is not covered"
"""The words for what the ε of choosing on a proxy corpus covers."""


def covers(sweep: Sweep) -> str:
    """Return the words for what the ε of a release covers: not the earlier sweep that its search began at."""
    earlier = sweep.recipe.search.points_from
    return COVERS if earlier is None else f"{COVERS}; nor are the points of {earlier}, at which the search began"


_METHODS = {"dpsgd": "per-utterance clipping", "edp": "the paper's mechanism"}


def headline(found: Snapshot) -> list[str]:
    """Return lines on the released model, its ε, and what the same ε costs on the proxy corpus.

    Return [] for a sweep that does not choose on a proxy corpus.
    """
    if (plan := found.plan) is None:
        return []
    private, proxy = plan.recipe.corpus.name, found.recipe.corpus.name
    if (point := found.release) is None:
        idle = "" if found.state == "running" else f" Go on with: {found.sweep.command('resume')}"
        return [f"Nothing is released yet. The trials run on {proxy}, which is public: they cost {private} no ε.{idle}"]
    earlier = found.recipe.search.points_from
    metrics, unit = point.metrics, plan.recipe.edp.unit.replace("example", "utterance").replace("_", "-")
    lines = [
        f"Released: a model of {private} with a SER of {FIGURES['ser'].cell(metrics)}, "
        f"at ε = {epsilon_text(metrics['epsilon'])} "
        f"{'in all (search and release)' if earlier is None else 'of the release'}, δ = {metrics['delta']:g}, "
        f"for one {unit}.",
        "; ".join([f"ε covers {covers(found.sweep)}", *labels_remark(plan.recipe.corpus)]) + ".",
        *_on_proxy(found, point),
    ]
    if (more := len(found.final) - 1) > 0:
        lines.append(f"With {more} later training{'s' * (more > 1)} on {private}: ε = {found.epsilon_words} together.")
    return lines


def _on_proxy(found: Snapshot, point: Point) -> list[str]:
    """Return lines that compare the released settings with none, and with other methods, on the proxy corpus."""
    last = [p for trial in found.trials if trial.state == "complete" for p in trial.points if p.last]
    same = next((p for p in last if p.trial == point.trial), None)
    figures = [f"{ser} without privacy"] if (ser := FIGURES["ser"].cell(found.baseline)) else []
    if same is not None:
        figures.append(_at_epsilon(same, "the released settings"))
    released_by = point.spec.training.method
    for method in found.recipe.methods:
        by_method = [p for p in last if p.spec.training.method == method]
        if method != released_by and by_method:
            most = point.recipe.edp.epsilon or math.inf
            within = [p for p in by_method if p.metrics["epsilon"] <= most]
            best = min(within or by_method, key=lambda p: p.metrics["ser" if within else "epsilon"])
            figures.append(_at_epsilon(best, _METHODS[method]))
    return [f"On {found.recipe.corpus.name}, the public proxy corpus: SER {enumerated(figures)}."] if figures else []


def _at_epsilon(point: Point, trained: str) -> str:
    return f"{FIGURES['ser'].cell(point.metrics)} with {trained} at ε = {epsilon_text(point.metrics['epsilon'])}"


def released_in_place_of(found: Snapshot, point: Point) -> Point:
    """Return the released model if `point` is the trial that it was chosen by; else return `point`."""
    release = found.release
    return release if release is not None and (release.trial, release.epoch) == (point.trial, point.epoch) else point


def configuration_of(found: Snapshot, point: Point) -> TrialSpec:
    """Return the configuration that trains a point's settings on the sweep's private corpus.

    Raises:
        UserError: if no noise meets the target ε there.
    """
    if found.plan is not None and point.recipe != found.plan.recipe:
        return private_configuration(found.plan, point)
    return picked_spec(point)


def private_configuration(plan: Plan, point: Point) -> TrialSpec:
    """Return the settings of a trial on the proxy corpus, on the private corpus and with the noise for ε there.

    ε is the recipe's target; where z0 was searched, that of the trial, or `edp.epsilon` if that is less.

    Raises:
        UserError: if no noise meets the target ε.
    """
    recipe, training = plan.recipe, picked_spec(point).training
    params = {key: value for key, value in point.params.items() if key != "z0"} | {"training.epochs": training.epochs}
    most = recipe.edp.epsilon
    assert most is not None, "a recipe with this plan has one"
    params["epsilon"] = most if recipe.target is not None else min(most, point.metrics["epsilon"])
    if training.decay_epochs is not None:
        params["training.decay_epochs"] = training.decay_epochs
    try:
        return resolve(recipe, params, plan.units).spec
    except ConfigurationRefused as refusal:
        raise UserError(f"edp.epsilon = {most:g}: {refusal}") from None
