"""All attacks on one trained model, found by name: its figures as a JSON document, as metrics and as a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mlflow.tracking import MlflowClient
from rich.console import Console

from edp.spec import UserError
from sweeps.config.loading import load_config
from sweeps.config.parts import MAX_REFERENCES, ResourcesSpec
from sweeps.engine.jobs.attack_models import predictions_of, train_references
from sweeps.engine.opening import Opening
from sweeps.engine.progress import Progress
from sweeps.results.front import pareto_front
from sweeps.results.front_figure import roc_svg
from sweeps.results.recommendation import picked_spec
from sweeps.results.snapshot import Snapshot
from sweeps.store.prepared import Prepared, locate
from sweeps.store.records import Point
from sweeps.store.storage import Place, default_tracking_uri
from sweeps.store.sweep import Sweep
from sweeps.text.attacks import ATTACK_HEADS, ATTACK_LEGEND, attack_lines, attack_rows
from sweeps.text.figures import labels_field, measured
from sweeps.text.paths import as_path
from sweeps.text.terminal import command_line
from sweeps.tracking.job_run import JobRun
from sweeps.tracking.store import check_store, refusal
from sweeps.tracking.tracker import Figures, Tracker
from trainables.config import TrialSpec
from trainables.config.keys import NO_EFFECT, cache_key, identity
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.measure.attacks.auditing import audit, canary_scores
from trainables.measure.attacks.canary import read_coins
from trainables.measure.attacks.extraction import extraction
from trainables.measure.attacks.roc import AttackResult, run_attacks, strongest
from trainables.measure.measuring import permitted_metrics, privacy_metrics
from trainables.records.epochs import read_ledger
from trainables.records.files import atomic_write, reading, write_json
from trainables.training.references import (
    Arrays,
    Kind,
    ReferenceModel,
    gather_evidence,
    reference_spec,
    same_corpus_parts,
)

PERMITTED = ("gaussian_mu", "permitted_tpr_at_1pct_fpr", "permitted_tpr_at_01pct_fpr")
"""Names, in the document, of the figures of an audit and of a ledger. Without audit or ledger they are null."""

_PAGE_STYLE = (
    "<style>body{font-family:sans-serif;max-width:900px;margin:1em auto;padding:0 1em}svg{width:100%;height:auto}"
    "td,th{padding:.3em 1em .3em 0;text-align:right}td:first-child,th:first-child{text-align:left}</style>"
)

_SHADOW_SEED = 1_000_003
"""Added to the seed of the shadow model of the same corpus, whose weights must differ from every reference's."""


def attack(target: Target, references: int, kind: Kind, console: Console) -> dict[str, Any]:
    """Run all attacks on `target`. Reference models that are in the cache are not trained again.

    Write `attacks.json` and `attacks.html` to the target's folder and, if it has an MLflow run, to the run's artifacts.

    Args:
        references: number of reference models. It is even, because each pair shares the pool.
        kind: how reference models are trained, see `trainables.training.references.reference_spec`.

    Returns:
        The document that `edp-sweep attack --json` prints.

    Raises:
        UserError: if the attacks cannot be run. Nothing was made then.
        TrialError: if a reference model cannot be trained.
    """
    if not 2 <= references <= MAX_REFERENCES or references % 2:
        raise UserError(
            f"--references = {references}: each pair shares the data; allowed: an even number from 2 to "
            f"{MAX_REFERENCES}"
        )
    if target.run_id is not None:
        check_store(target.tracking_uri)
    opened = Opening(target.place, target.spec, Progress(console))
    if target.taught_by is not None:
        taught = locate(target.taught_by, target.place.cache)
        opened.prepared = replace(opened.prepared, attack=taught.attack)
    if not (fitted := opened.prepared.attack).is_file():
        raise UserError(f"run = {target.name}: its shadow attack {fitted} is gone; allowed: train it again")
    with opened.on_ray():
        opened.encode()
        return attack_in_session(target, opened, references, kind)


def attack_in_session(
    target: Target, opened: Opening, references: int, kind: Kind, tracker: Tracker | None = None
) -> dict[str, Any]:
    """Run all attacks in a Ray session whose corpora are encoded.

    Args:
        tracker: writes to the target's run; None: one is opened.
    """
    prepared, cache = opened.prepared, opened.place.cache
    corpus, seed = EncodedCorpus.open(prepared.corpus), target.spec.corpus.seed
    if not all(map(len, same_corpus_parts(corpus, seed))):
        raise UserError(
            f"corpus = {target.spec.corpus.name}: its test split has {corpus.size('test')} utterances, and a shadow "
            "model is trained on a quarter of it; allowed: 4 or more different utterances"
        )
    # Only `own` references are trained as long as the model. All trials of a sweep share those without privacy.
    compared = (target.again or target.spec) if kind == "own" else target.spec
    folder = cache / f"references-{_reference_key(compared, prepared, kind)}"
    reference_models = [
        ReferenceModel(reference_spec(compared, kind, k), prepared.corpus, folder / f"{k}.npz", k)
        for k in range(references)
    ]
    shadow_folder = cache / f"references-{_reference_key(target.spec, prepared, 'sgd')}"
    shadow = ReferenceModel(
        reference_spec(target.spec, "sgd", _SHADOW_SEED), prepared.corpus, shadow_folder / "same_corpus.npz", None
    )
    if any(not model.output.is_file() for model in (*reference_models, shadow)):
        how = "without privacy" if kind == "sgd" else "as the attacked model, and without a ledger"
        models = f"{references} reference models, trained {how}, and a shadow model"
        part = f"{models}; their losses are kept, not their weights"
        opened.recorder.begin("attack", reference_spec(target.spec, "sgd", 0), part=part)
    train_references([*reference_models, shadow], target.resources, opened.progress.console)
    seen = predictions_of(target.spec, prepared.corpus, target.folder / "model.pt", target.resources)
    references_of = [model.output for model in reference_models]
    results = run_attacks(gather_evidence(seen, references_of, prepared.attack, shadow.output, corpus, seed))
    document = _document(target, prepared, seen, results, reference_models, kind)
    _keep(target, document, results, tracker)
    return document


def not_attacked(sweep: Sweep) -> list[Point]:
    """Return the points of the front that were not attacked yet; [] if the recipe asks for no attacks."""
    recipe = sweep.recipe
    search = recipe.search
    front = pareto_front(sweep.trials(), search.objectives, search.limits) if recipe.attacks.at_end else []
    return [point for point in front if not (point.folder / "attacks.json").is_file()]


def attack_front(sweep: Sweep, opened: Opening, tracker: Tracker) -> None:
    """Attack the points that `not_attacked` returns, in a Ray session. An MLflow store that fails is reported only."""
    how_many, progress = sweep.recipe.attacks.references, opened.progress
    for point in not_attacked(sweep):
        target, before = of_point(sweep, point, tracker.uri), tracker.failures
        found = attack_in_session(target, opened, how_many, "sgd", tracker)
        best = next(one for one in found["attacks"] if one["name"] == found["strongest"])
        progress.say(f"attacked trial {point.name}: strongest {best['name']}, AUC {best['auc']:.3f}")
        if tracker.failures > before:
            again = command_line("attack", target.name, storage=sweep.folder.parent)
            progress.say(f"MLflow lacks this attack's figures; when it answers again, send them with: {again}")


def _reference_key(spec: TrialSpec, prepared: Prepared, kind: Kind) -> str:
    """Return the cache key of a set of reference models, the same for all trials of a sweep if `kind` is `sgd`."""
    leave_out = NO_EFFECT | ({"micro_batches"} if kind == "sgd" else set())
    training = identity(reference_spec(spec, kind, 0).training, leave_out)
    return cache_key(prepared.corpus.name, spec.model, spec.corpus.seed, training, spec.edp if kind == "own" else None)


def _document(
    target: Target,
    prepared: Prepared,
    seen: Arrays,
    results: list[AttackResult],
    reference_models: list[ReferenceModel],
    kind: Kind,
) -> dict[str, Any]:
    delta = target.spec.edp.delta
    ledger = read_ledger(target.folder)
    audited = None
    if prepared.coins is not None and "canary_losses" in seen:
        audited = audit(canary_scores(seen["canary_losses"]), read_coins(prepared.coins), delta)
    extracted = None
    if "secret_losses" in seen:
        of_each = np.split(seen["candidate_losses"], seen["candidates"].cumsum()[:-1])
        extracted = asdict(extraction(seen["secret_losses"], of_each))
    epsilons = privacy_metrics(ledger, delta) if ledger is not None else {}
    permitted = permitted_metrics(ledger, delta) if ledger is not None else {}
    return {
        "run": target.name,
        "run_id": target.run_id,
        "trained_on": trained_on(target.folder / "model.pt"),
        "attacks": [result.document() for result in results],
        "strongest": strongest(results).name,
        "references": len(reference_models),
        "reference_training": kind,
        "reference_epochs": reference_models[0].spec.training.epochs,
        "epsilon_audited": audited.epsilon if audited is not None else None,
        "canaries": audited.canaries if audited is not None else 0,
        "extraction": extracted,
        "epsilon": epsilons.get("epsilon"),
        "epsilon_user": epsilons.get("epsilon_user"),
        "epsilon_paper": epsilons.get("epsilon_paper"),
        "formal_guarantee": measured(epsilons)["formal_guarantee"],
        **{name: permitted.get(name) for name in PERMITTED},
        "delta": delta,
        **labels_field(target.spec.corpus),
        "output": str(target.folder),
    }


def _keep(
    target: Target, document: dict[str, Any], results: list[AttackResult], tracker: Tracker | None = None
) -> None:
    curves = {result.name: {"fpr": result.fpr, "tpr": result.tpr} for result in results}
    write_json(target.folder / "attacks.json", document | {"curves": curves})
    page = target.folder / "attacks.html"
    with atomic_write(page) as partial:
        partial.write_text(attack_page(document, results), encoding="utf-8")
    if target.run_id is None:
        return
    if tracker is None:
        tracker = Tracker(target.tracking_uri, target.experiment, target.place.artifacts, new=False)
    metrics = {
        f"attack_{result.name}_{figure}": getattr(result, figure)
        for result in results
        for figure in ("auc", "tpr_at_1pct_fpr", "tpr_at_01pct_fpr")
    }
    metrics |= {name: document[name] for name in ("epsilon_audited", *PERMITTED) if document[name] is not None}
    attacked_run = JobRun(tracker, target.run_id, tracker.failures)
    tracker.log(target.run_id, Figures(metrics, target.epoch))
    tracker.tag(target.run_id, {"strongest_attack": document["strongest"]})
    attacked_run.files([target.folder / "attacks.json", page], target.artifacts)


def attack_page(document: dict[str, Any], results: list[AttackResult]) -> str:
    """Return an HTML page that opens without a network: the figures in words, the ROC curves, and a table."""
    title = escape(f"Attacks on {document['run']}")
    words = "".join(f"<p>{escape(line)}</p>" for line in attack_lines(document))
    rows = ["<tr><td>" + "<td>".join(map(escape, row)) for row in attack_rows(document)]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{_PAGE_STYLE}<h1>{title}</h1>'
        f"{words}{roc_svg(results)}<p>Right: the same curves on logarithmic axes.</p>"
        f"<table><tr><th>{'<th>'.join(ATTACK_HEADS)}{''.join(rows)}</table><p>{ATTACK_LEGEND}</p></html>"
    )


@dataclass(frozen=True)
class Target:
    """A trained model, and where the results of attacks go."""

    name: str
    folder: Path
    """Folder of `model.pt` and `ledger.json`."""
    spec: TrialSpec
    place: Place
    run_id: str | None
    tracking_uri: str
    experiment: str
    resources: ResourcesSpec
    epoch: int
    """Number of epochs that it was trained for."""
    artifacts: str = "attacks"
    """Folder of the results in the run's artifacts."""
    again: TrialSpec | None = None
    """Configuration that trains this model again, if it is an earlier epoch of its trial."""
    taught_by: TrialSpec | None = None
    """Configuration whose shadow model taught the attack: a sweep's baseline, for all of its trials; None: `spec`."""


def find_target(run: str, storage: Path, tracking_uri: str | None) -> Target:
    """Return the model that `run` names.

    Args:
        run: SWEEP/NUMBER (SWEEP/2@3 is trial 2 after epoch 3), SWEEP/baseline, or a folder of `edp-sweep train` (its
            path, or its name in `storage`).

    Raises:
        UserError: if there is no such run, or it has no model.
    """
    try:
        places = [folder.resolve() for folder in (as_path(storage / as_path(run)), as_path(run))]
    except UserError as error:
        raise UserError(f"run = {error}") from None
    for folder in places:
        # A trial's folder has a config.yaml, too, but no cache beside it.
        if (folder / "config.yaml").is_file() and (folder.parent / "cache").is_dir():
            return _of_training(Place(folder.parent, folder.name), tracking_uri)
    name, _, which = run.partition("/")
    if which:
        return _of_sweep(Sweep.existing(storage, name), which, tracking_uri)
    raise UserError(
        f"run = {run!r}: no such run in {storage}; allowed: SWEEP/NUMBER, SWEEP/baseline, or the folder of a training"
    )


def _of_sweep(sweep: Sweep, which: str, tracking_uri: str | None) -> Target:
    if which != "baseline":
        try:
            point = Snapshot(sweep).named(which)
        except UserError as error:
            raise UserError(f"run = {sweep.name}/{which}: {error}, or baseline") from None
        return of_point(sweep, point, tracking_uri)
    record, recipe = sweep.record, sweep.recipe
    if record.baseline is None:
        raise UserError(
            f"run = {sweep.name}/baseline: its SGD baseline is not trained yet; allowed: after it has been trained"
        )
    name, folder, spec = f"{sweep.name}/baseline", sweep.folder / "baseline", recipe.baseline()
    run_id, uri = record.baseline["run_id"], tracking_uri or record.tracking_uri
    target = Target(name, folder, spec, sweep, run_id, uri, record.recipe, recipe.resources, spec.training.epochs)
    return _with_model(target)


def of_point(sweep: Sweep, point: Point, tracking_uri: str | None = None) -> Target:
    """Return the model of a sweep's point.

    Raises:
        UserError: if its file is gone, or it was trained on the utterances that the attacks need as non-members.
    """
    record, recipe = sweep.record, sweep.recipe
    return _with_model(
        Target(
            name=f"{sweep.name}/{point.name}",
            folder=point.folder,
            spec=point.spec,
            place=sweep,
            run_id=point.run_id,
            tracking_uri=tracking_uri or record.tracking_uri,
            experiment=record.recipe,
            resources=recipe.resources,
            epoch=point.epoch,
            artifacts="attacks" if point.last else f"attacks-epoch-{point.epoch}",
            again=picked_spec(point),
            taught_by=recipe.baseline(),
        )
    )


def _of_training(place: Place, tracking_uri: str | None) -> Target:
    spec = load_config(place.folder / "config.yaml", [])
    uri = tracking_uri or default_tracking_uri(place.storage)
    run_id = _run_of_training(place.name, uri)
    return _with_model(
        Target(place.name, place.folder, spec, place, run_id, uri, "train", ResourcesSpec(), spec.training.epochs)
    )


def _with_model(target: Target) -> Target:
    if not (target.folder / "model.pt").is_file():
        raise UserError(f"run = {target.name}: {target.folder} has no model.pt; allowed: a run that has completed")
    if trained_on(target.folder / "model.pt") == "train+valid":
        raise UserError(
            f"run = {target.name}: its model was trained on train+valid, but attacks need utterances that it has "
            "not seen, and RMIA takes the validation split as its population; allowed: a model trained on train, the "
            "default of edp-sweep train --on"
        )
    return target


def trained_on(model: Path) -> str | None:
    """Return the splits that a model was trained on, as its file says; None if the file does not say it."""
    with reading(model):
        found: str | None = torch.load(model, map_location="cpu", weights_only=True).get("trained_on")
    return found


def _run_of_training(name: str, uri: str) -> str | None:
    """Return the id of the MLflow run that tracked a training, or None if there is none."""
    uri = check_store(uri)
    try:
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("train")
        if experiment is None:
            return None
        found = client.search_runs([experiment.experiment_id], f"tags.sweep = '{name}'", max_results=1)
    except Exception as error:  # MLflow, its plugins and database drivers have no common error
        raise refusal(uri, error) from None
    return str(found[0].info.run_id) if found else None
