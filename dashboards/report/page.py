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

from dashboards.report.chosen import attacks_of, last_pick, roc_svg, served_models, survived
from dashboards.report.questions import Known, Verified, questions
from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.choice import split_of
from sweeps.config.recipe import Recipe
from sweeps.registry.card import NEIGHBOURS, privacy_tags
from sweeps.results.confirmed import confirmed_runs
from sweeps.results.cost import choice_in, epsilon_of_sweep, epsilon_user_of_sweep, known, unknown_ledgers, what_counts
from sweeps.results.front import pareto_front, tie_lines, ties
from sweeps.results.front_figure import front_svg
from sweeps.results.headline import headline
from sweeps.results.recommendation import choose, leakage_of, picked_spec, recommended
from sweeps.run.prepare import Prepared, locate
from sweeps.store.picks import Pick
from sweeps.store.plans import Plan, plan_of, released
from sweeps.store.records import Point, TrialRecord
from sweeps.store.sweep import Sweep
from sweeps.text.columns import TPR, tpr_cell
from sweeps.text.figures import (
    NO_GUARANTEE,
    audit_words,
    audited_text,
    epsilon_cell,
    epsilon_text,
    params_text,
    permitted_words,
    points_apart,
    shadow_words,
    tpr_text,
    user_cell,
    utility_words,
)
from sweeps.text.paths import check_output, output
from sweeps.tracking.run_tags import environment_tags
from sweeps.tracking.tracker import Tracker
from trainables.config import BERTSpec, CLCSpec, CorpusSpec, TrialSpec
from trainables.corpora import is_generated
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.records.files import atomic_write, read_json_if_any, reading
from trainables.records.pareto import deciding

Verify = Callable[[TrialSpec], dict[str, Any]]
_VERIFIED = "verified.json"


def write_report(sweep: Sweep, path: Path, tracking_uri: str | None = None, verify: Verify | None = None) -> Point:
    """Write the report of a sweep that has a front.

    Args:
        tracking_uri: of the store, if it has moved since the sweep.
        verify: measures the chosen configuration's clip and noise. The result is kept for later reports.

    Returns:
        The point of the report: the released model of a sweep that chooses on a proxy corpus. Of other sweeps, the last
        pick, or else the point that `edp-sweep pick` would choose.

    Raises:
        UserError: if there is nothing to report, or the file cannot be written.
    """
    check_output(path)
    recipe, trials = sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives)
    if not front:
        raise UserError(f"name = {sweep.name!r} has no complete trial yet; allowed: a sweep with a front")
    plan, release = plan_of(sweep), released(sweep)
    if plan is not None and release is None:
        raise UserError(f"name = {sweep.name!r}: nothing is released yet; go on with: {sweep.command('resume')}")
    tracker = Tracker(
        tracking_uri or sweep.record.tracking_uri,
        sweep.record.recipe,
        sweep.folder.parent / "mlflow-artifacts",
        new=False,
    )
    picked = last_pick(sweep)
    if release is not None and (picked is None or picked[1].name != release.name):
        picked = None  # a pick of another trial is no released model
    chosen = release or (picked[1] if picked else choose(sweep, {})[0])
    if verify is not None:
        with atomic_write(chosen.folder / _VERIFIED) as partial:
            partial.write_text(json.dumps(verify(picked_spec(chosen)), indent=1))
    page = _template().render(**_facts(sweep, recipe, trials, front, chosen, picked[0] if picked else None, tracker))
    with output(path) as file:
        file.write(page)
    return chosen


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("dashboards.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "epsilon": epsilon_text,
        "cell": epsilon_cell,
        "percent": "{:.2%}".format,
        "utility": utility_words,
        "share": "{:.3f}".format,
        "audited": audited_text,
        "user": user_cell,
        "tpr": tpr_text,
        "tpr_cell": tpr_cell,
        "params": params_text,
    }
    return environment.get_template("report.html")


def _facts(
    sweep: Sweep,
    recipe: Recipe,
    trials: list[TrialRecord],
    front: list[Point],
    chosen: Point,
    pick: Pick | None,
    tracker: Tracker,
) -> dict[str, Any]:
    """Return the variables of the template."""
    baseline, objectives, plan = sweep.record.baseline or {}, recipe.search.objectives, plan_of(sweep)
    points = [point for trial in trials for point in trial.points]
    drawn = next((point for point in points if point.name == chosen.name), chosen)
    tied = ties(trials, front, objectives)
    cost = epsilon_of_sweep(sweep, trials)
    choice = choice_in(sweep, split_of(chosen.metrics), pick.limits if pick else ())
    return {
        "sweep": sweep,
        "record": sweep.record,
        "recipe": recipe if plan is None else plan.recipe,
        "proxy": recipe.corpus.name if plan is not None else None,
        "objectives": objectives,
        "headline": headline(sweep, trials),
        "now": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "pick": pick,
        "served": served_models(sweep, tracker),
        "confirm": sweep.command("confirm"),
        "advice": recommended(sweep),
        "split": split_of(chosen.metrics),
        "plain": deciding(baseline),
        "front": [_row(point, baseline, tied) for point in front],
        "baseline": baseline,
        "schema_only": sweep.record.schema_only or {},
        "tied": tie_lines(tied, {point.name for point in front}),
        "figure": Markup(front_svg(points, front, ("ser", leakage_of(recipe)), baseline, drawn)),
        "rare": TPR in objectives,
        "models": len(points),
        "users": any("epsilon_user" in point.metrics for point in front),
        "audits": any("epsilon_audited" in point.metrics for point in front),
        "counts": {s: sum(t.state == s for t in trials) for s in ("complete", "stopped", "failed", "refused")},
        "searched": ", ".join(recipe.dimensions),
        "cost_of_sweep_to_a_user": epsilon_user_of_sweep(sweep, trials),
        "cost_of_sweep": math.nan if cost is None else cost,
        "unknown": unknown_ledgers(sweep, trials),
        "counted": what_counts(sweep),
        "costs": _costs(trials, baseline),
        "source": recipe_text(recipe if plan is None else plan.recipe),
        "choice": choice,
        **_about_chosen(sweep, recipe, plan, chosen, epsilon_text(math.nan if cost is None else cost), choice, tracker),
    }


def _about_chosen(
    sweep: Sweep, recipe: Recipe, plan: Plan | None, chosen: Point, cost: str, choice: str, tracker: Tracker
) -> dict[str, Any]:
    """Return the template's variables that depend on the chosen configuration; `cost` is the sweep's ε in words."""
    if plan is not None:
        recipe = plan.recipe
    spec, prepared = picked_spec(chosen), _prepared(sweep, recipe)
    attacks, curves, compared = attacks_of(chosen, prepared, spec)
    corpus, versions = _corpus(prepared, recipe.corpus), _versions(tracker, sweep)
    confirmed = confirmed_runs(sweep, chosen) if plan is None else []
    examples = sweep.record.examples if plan is None else plan.examples
    known = Known(
        report=sweep.command("report", "--verify"),
        confirm=sweep.command("confirm"),
        spec=spec,
        chosen=chosen,
        baseline=(sweep.record.baseline or {}) if plan is None else {},
        examples=corpus["sizes"]["train"] if corpus else examples,
        users=corpus["users"] if corpus else None,
        cost=cost,
        choice=choice,
        proxy=sweep.recipe.corpus.name if plan is not None else None,
        verified=read_json_if_any(chosen.folder / _VERIFIED, Verified),
        seeds=len(confirmed),
        attacks=attacks,
        versions=versions,
    )
    topics = questions(known)
    return {
        "chosen": chosen,
        "spec": spec,
        "topics": topics,
        "open": sum(answer.open for _, answers in topics for answer in answers),
        "asked": sum(len(answers) for _, answers in topics),
        "survived": survived(chosen, confirmed),
        "corpus": corpus,
        "public": _public(spec, recipe),
        "privacy": privacy_tags(spec, chosen.metrics, None),
        "neighbours": NEIGHBOURS[spec.edp.sampling],
        "no_guarantee": chosen.metrics["epsilon"] >= NO_GUARANTEE,
        "steps": chosen.ledger.steps if chosen.ledger is not None else None,
        "clips": _clips_in_words(spec, chosen.ledger),
        "attacks": attacks,
        "compared": compared,
        "permitted": permitted_words(chosen.metrics),
        "audit": audit_words(chosen.metrics),
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


def _row(point: Point, baseline: dict[str, Any], tied: dict[str, list[str]]) -> dict[str, Any]:
    metrics, seen = point.metrics, point.deciding
    return {
        "name": point.name,
        "tied": point.name in tied,
        "metrics": metrics,
        "seen": seen,
        "ser": _between(seen, "ser", percent=True),
        "test_ser": _between(metrics, "ser", percent=True),
        "mia": _between(seen, "mia_auc"),
        "tpr": _between(seen, TPR, percent=True),
        "tpr_at": tpr_cell(seen),
        "change": _change(metrics["ser"], baseline.get("ser")),
        "params": params_text(point.params),
    }


def _between(metrics: dict[str, float], name: str, percent: bool = False) -> str:
    """Return the 95 % interval of a metric; "" if it has none."""
    low, high = metrics.get(f"{name}_lower"), metrics.get(f"{name}_upper")
    if low is None or high is None:
        return ""
    return f"{low:.1%} – {high:.1%}" if percent else f"{low:.3f} – {high:.3f}"


def _change(value: float, baseline: float | None) -> str:
    return "" if baseline is None else points_apart(value, baseline)


def _prepared(sweep: Sweep, recipe: Recipe) -> Prepared | None:
    try:
        return locate(recipe.baseline(), sweep.cache)
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
        "canaries": corpus.planted,
        "synthetic": is_generated(spec),
        "users": corpus.number_of_users,
        "digest": corpus.digest[:16],
    }


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe as YAML without its defaults; `edp-sweep run` reads it."""
    found = recipe.model_dump(mode="json", exclude_defaults=True)
    model = {"kind": recipe.model.kind, **found.get("model", {})}  # needed to read the other settings of the model
    return yaml.safe_dump(found | {"model": model}, sort_keys=False)


def _public(spec: TrialSpec, recipe: Recipe) -> list[str]:
    """Return the public data that was read in addition to the private corpus."""
    model = spec.model
    if isinstance(model, CLCSpec):
        corpus = model.embeddings.corpus
        words = f"word vectors from {corpus.name}" if corpus is not None else "word vectors from a file"
    else:
        words = f"pretrained {model.pretrained}" if model.pretrained else f"a vocabulary from {model.vocabulary.name}"
    found = [words, f"the shadow model of the attack from {spec.shadow.corpus.name}"]
    features = model.features if isinstance(model, BERTSpec) else None
    if features is not None and features.public:
        found.append(f"the moments for whitening states from {' and '.join(c.name for c in features.public)}")
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
