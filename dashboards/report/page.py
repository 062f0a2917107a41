"""The report of a sweep: one file for a privacy review, without need of a network or a script.

All of its content comes from the sweep's files and MLflow; nothing is retrained or attacked again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from mlflow.exceptions import MlflowException
from typing_extensions import TypedDict  # pydantic reads it before Python 3.12

from dashboards.report.chosen import attacks_of, survived
from dashboards.report.questions import questions
from dashboards.report.subject import Served, Subject, advice_on, served_models, subject_of
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import recipe_text
from sweeps.config.recipe import Recipe
from sweeps.registry.bundle import public_start
from sweeps.registry.card import NEIGHBOURS, privacy_tags
from sweeps.results.account import accounts
from sweeps.results.confirmed import seeds_words
from sweeps.results.cost import known
from sweeps.results.front import tie_lines
from sweeps.results.front_figure import front_svg, roc_svg
from sweeps.results.headline import headline
from sweeps.results.recommendation import leakage_of
from sweeps.results.snapshot import Snapshot
from sweeps.store.prepared import Prepared, locate
from sweeps.store.records import Point, TrialRecord
from sweeps.store.sweep import Sweep
from sweeps.text.columns import HOLLOW, HOLLOW_WORDS, TPR, model_cells, model_heads
from sweeps.text.figures import (
    FIGURES,
    NO_GUARANTEE,
    deciding_figure,
    delta_words,
    ends_early,
    epsilon_text,
    noise_read_words,
    params_text,
    permitted_words,
    read_text,
    shadow_words,
    tpr_text,
    utility_words,
)
from sweeps.text.paths import check_output, output
from sweeps.tracking.run_tags import environment_tags
from sweeps.tracking.tracker import Tracker, tracker_of
from trainables.config import BERTSpec, CLCSpec, CorpusSpec, TrialSpec
from trainables.corpora import is_generated
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.records.files import atomic_write, read_json_if_any, reading

Verify = Callable[[TrialSpec], dict[str, Any] | None]
_VERIFIED = "verified.json"


class _Verified(TypedDict):
    """What `edp-sweep verify` measured."""

    violations: list[dict[str, str]]
    sensitivity: dict[str, float]
    noise_std: dict[str, float]
    steps: int


def write_report(
    sweep: Sweep, path: Path, tracking_uri: str | None = None, verify: Verify | None = None, *, anew: bool = True
) -> Point:
    """Write the report of a sweep that has a front.

    Args:
        tracking_uri: of the store, if it has moved since the sweep.
        verify: measures clip and noise of the model's configuration; None if it could not. The result is kept for later
            reports.
        anew: False to call `verify` only if no result is kept.

    Returns:
        The model of the report (`dashboards.report.subject.subject_of`).

    Raises:
        UserError: if there is nothing to report, or the file cannot be written.
    """
    check_output(path)
    found = Snapshot(sweep)
    if not found.pareto:
        raise UserError(f"name = {sweep.name!r} has no complete trial yet; allowed: a sweep with a front")
    if found.plan is not None and found.release is None:
        raise UserError(f"name = {sweep.name!r}: nothing is released yet; go on with: {sweep.command('resume')}")
    tracker = tracker_of(sweep, tracking_uri)
    served = served_models(found, tracker)
    subject = subject_of(found, served)
    kept = subject.model.folder / _VERIFIED
    if verify is not None and (anew or not kept.is_file()) and (checked := verify(subject.spec)) is not None:
        with atomic_write(kept) as partial:
            partial.write_text(json.dumps(checked, indent=1))
    page = _template().render(**_facts(found, subject, served, tracker))
    with output(path) as file:
        file.write(page)
    return subject.model


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("dashboards.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cells": model_cells,
        "epsilon": epsilon_text,
        "noise_read": noise_read_words,
        "params": params_text,
        "read": read_text,
        "tpr": tpr_text,
        "utility": utility_words,
    }
    environment.globals |= {"figures": FIGURES, "deciding_figure": deciding_figure}
    return environment.get_template("report.html")


def _facts(found: Snapshot, subject: Subject, served: list[Served], tracker: Tracker) -> dict[str, Any]:
    """Return the variables of the template."""
    sweep, recipe, plan, points = found.sweep, found.recipe, found.plan, found.points
    baseline, objectives = found.baseline, recipe.search.objectives
    ringed = next((point for point in points if point.name == subject.settings.name), subject.settings)
    noisy = {one.key for one in found.front if one.hollow}
    models = [*(one.metrics for one in found.front), subject.model.metrics]
    return {
        "sweep": sweep,
        "record": found.record,
        "recipe": recipe if plan is None else plan.recipe,
        "proxy": recipe.corpus.name if plan is not None else None,
        "objectives": objectives,
        "headline": headline(found),
        "now": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "subject": subject,
        "pick": subject.pick,
        "served": served,
        "confirm": sweep.command("confirm"),
        "rule": found.recommended(),
        "front": [{"candidate": one, "seeds": seeds_words(found.new_seeds(one.point))} for one in found.front],
        "baseline": baseline,
        "schema_only": found.schema_only,
        "tied": tie_lines(found.candidates),
        "figure": Markup(front_svg(points, found.pareto, ("ser", leakage_of(recipe)), baseline, ringed, noisy)),
        "hollow": HOLLOW,
        "hollow_words": HOLLOW_WORDS,
        "rare": TPR in objectives,
        "models": len(points),
        "heads": [head for head in model_heads(models) if head.startswith("ε")],
        "counts": {state: n for state, n in found.counts.items() if state not in ("running", "interrupted")},
        "searched": ", ".join(recipe.dimensions),
        "cost_of_sweep_to_a_user": found.epsilon_user,
        "cost_of_sweep": found.epsilon_words,
        "unknown": found.lost,
        "counted": found.counted,
        "account": _account(found, subject.model.metrics["delta"]),
        "costs": _costs(found.trials, baseline),
        "source": recipe_text(recipe if plan is None else plan.recipe),
        **_about_subject(found, subject, tracker),
    }


def _account(sweep: Snapshot, delta: float) -> dict[str, Any]:
    """Return the ε of everything in the storage folder that was trained on the sweep's private corpus."""
    (found,) = accounts(sweep.sweep.folder.parent, sweep.private_corpus)
    return {
        "epsilon": found.everything(delta) or (None if found.uncounted else 0.0),
        "user": found.everything_user(delta) if found.unit != "user" else None,
        "uncounted": found.uncounted,
        "plain": found.without_privacy,
        "activities": len(found.rows),
    }


def _about_subject(found: Snapshot, subject: Subject, tracker: Tracker) -> dict[str, Any]:
    """Return the template's variables that depend on the model."""
    sweep, plan = found.sweep, found.plan
    recipe = found.recipe if plan is None else plan.recipe
    spec, model = subject.spec, subject.model
    prepared = _prepared(sweep, spec if subject.training else recipe.baseline())
    attacks, curves, compared = attacks_of(model, prepared, spec)
    corpus, versions = _corpus(prepared, recipe.corpus), _versions(tracker, sweep)
    confirmed = found.confirmed(subject.settings)
    examples = found.record.examples if plan is None else plan.examples
    splits = subject.trained.trained_on if subject.trained is not None else ("train",)
    if corpus is not None:
        examples = sum(corpus["sizes"][split] for split in splits)
    elif subject.trained is not None:
        examples = subject.trained.examples
    verified = read_json_if_any(model.folder / _VERIFIED, _Verified)
    users = corpus["users"] if corpus else None
    counted, n = ("user", users) if spec.edp.unit == "user" else ("utterance", examples)
    delta = delta_words(model.metrics["delta"], counted, n)
    topics = questions(
        spec,
        model,
        report=sweep.command("report", "--verify"),
        confirm=sweep.command("confirm"),
        baseline=found.baseline if plan is None else {},
        users=users,
        delta=delta,
        cost=found.epsilon_words,
        choice=subject.choice,
        proxy=found.recipe.corpus.name if plan is not None else None,
        verified=verified,
        seeds=len(confirmed),
        attacks=attacks,
        versions=versions,
    )
    return {
        "chosen": model,
        "choice": subject.choice,
        "spec": spec,
        "delta": delta[0],
        "advice": advice_on(sweep, subject, small=delta[1], violations=verified["violations"] if verified else []),
        "topics": topics,
        "open": sum(answer.open for _, answers in topics for answer in answers),
        "asked": sum(len(answers) for _, answers in topics),
        "survived": survived(subject.settings, confirmed),
        "corpus": corpus,
        "public": _public(spec, recipe),
        "privacy": privacy_tags(spec, model.metrics, None),
        "neighbours": NEIGHBOURS[spec.edp.sampling],
        "no_guarantee": model.metrics["epsilon"] >= NO_GUARANTEE,
        "steps": model.ledger.steps if model.ledger is not None else None,
        "planned": ends_early(model.metrics),
        "clips": _clips_in_words(spec, model.ledger),
        "attacks": attacks,
        "compared": compared,
        "permitted": permitted_words(model.metrics),
        "shadow": shadow_words(spec.shadow.corpus.name),
        "roc": Markup(roc_svg(curves)) if curves else None,
        "versions": versions,
        "confirmed": confirmed,
        "config": yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False),
    }


def _clips_in_words(spec: TrialSpec, ledger: Ledger | None) -> str:
    """Return the number of clipped gradients per step, as executed; without a ledger, as planned."""
    who = "a user" if spec.edp.unit == "user" else "an utterance"
    clips = ledger.entries[0].mechanism.N if ledger is not None and ledger.entries else spec.training.clips
    return f"{clips:,} clipped gradients" if clips is not None else f"one clipped gradient {who}"


def _prepared(sweep: Sweep, spec: TrialSpec) -> Prepared | None:
    try:
        return locate(spec, sweep.cache)
    except UserError:
        return None  # the corpus is gone


def _corpus(prepared: Prepared | None, spec: CorpusSpec) -> dict[str, Any] | None:
    """Return sizes and labels of the encoded corpus; None if it is gone."""
    if prepared is None or not (prepared.corpus / "meta.json").is_file():
        return None
    with reading(prepared.corpus / "meta.json"):
        corpus = EncodedCorpus.open(prepared.corpus)
    sizes = {split: corpus.size(split) for split in ("train", "valid", "test")}
    return {
        "sizes": sizes,
        "intents": len(corpus.labels.intents) if corpus.labels.has_intents else 0,
        "slots": len(corpus.labels.tags) // 2,
        "synthetic": is_generated(spec),
        "users": corpus.number_of_users,
        "digest": corpus.digest[:16],
    }


def _public(spec: TrialSpec, recipe: Recipe) -> list[str]:
    """Return the public data that was read in addition to the private corpus."""
    model = spec.model
    if isinstance(model, CLCSpec):
        words = f"word vectors from {model.embeddings.corpus.name}"
    else:
        words = f"pretrained {model.pretrained}" if model.pretrained else f"a vocabulary from {model.vocabulary.name}"
    found = [words, f"the shadow model of the attack from {spec.shadow.corpus.name}"]
    if isinstance(model, BERTSpec):
        if model.features is not None and model.features.public:
            found.append(f"the moments for whitening states from {' and '.join(c.name for c in model.features.public)}")
        found += [f"what {begin}: {words}" for begin, words in public_start(spec).items()]
    if recipe.search.proxy is not None:
        found.append(f"the proxy corpus of a plan that chooses in public: {recipe.search.proxy.name}")
    return found


def _costs(trials: list[TrialRecord], baseline: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of all trials together, and of an epoch."""
    measured = [known(trial) for trial in trials]
    epochs = [m["seconds_per_epoch"] for m in measured if "seconds_per_epoch" in m]
    epoch = float(np.median(epochs)) if epochs else math.nan
    return {
        "gpu_seconds": sum(m.get("gpu_seconds", 0.0) for m in measured),
        "worker_seconds": sum(m.get("worker_seconds", 0.0) for m in measured),
        "trial_seconds": sum(m.get("trial_seconds", 0.0) for m in measured),
        "seconds_per_epoch": epoch,
        "ratio": epoch / baseline["seconds_per_epoch"] if baseline.get("seconds_per_epoch") else math.nan,
    }


def _versions(tracker: Tracker, sweep: Sweep) -> dict[str, str]:
    """Return the versions of packages and code from the sweep's MLflow run; without a run, the current ones."""
    try:
        tags = tracker.client.get_run(sweep.record.run_id).data.tags
    except MlflowException:
        tags = environment_tags()
    return {
        k.removeprefix("version."): v for k, v in sorted(tags.items()) if k.startswith("version.") or k == "git_commit"
    }
