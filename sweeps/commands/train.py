"""One configuration, trained and measured as a trial is."""

from __future__ import annotations

import math
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.commands.finish import tell_total
from sweeps.formatting.guarantee import delta_remark, measured
from sweeps.formatting.names import check_model_name, folder_name
from sweeps.formatting.secrets import redacted
from sweeps.recipes.loading import load_config, write_yaml
from sweeps.recipes.parts import ResourcesSpec, SearchSpec
from sweeps.recipes.target_epsilon import check_batches
from sweeps.registry.register import Registered, register
from sweeps.results.total import epsilon_of_sweep
from sweeps.run.capacity import check_memory
from sweeps.run.prepare import Prepared, check_encoders, encode_missing, ensure_attack, num_privacy_units, open_corpora
from sweeps.run.progress import Progress
from sweeps.run.resources import Placement, placement
from sweeps.run.session import ray_session, worker_group
from sweeps.run.watch import stall_reporter
from sweeps.state.corpora import keep_corpora
from sweeps.state.lock import claimed
from sweeps.state.picks import Origin, origin_of, sweep_named_in, write_origin
from sweeps.state.shell import default_tracking_uri
from sweeps.state.storage import brought_down
from sweeps.state.sweep import Sweep
from sweeps.tracking.corpus_inputs import corpus_inputs
from sweeps.tracking.job_run import JobRun, open_job
from sweeps.tracking.run_tags import flat, trial_tags
from sweeps.tracking.store_check import check_store
from sweeps.tracking.tracker import Tracker
from trainables.corpora import corpus_digest, is_generated, load_corpus
from trainables.corpora.types import Splits
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.pretraining.overlap import is_shared
from trainables.records.job import TrialJob, TrialResult
from trainables.records.ledger_file import write_ledger
from trainables.records.pareto import Metrics
from trainables.spec import TrialSpec


def train(
    config: Path,
    overrides: list[str],
    *,
    storage: Path,
    tracking_uri: str | None,
    progress: Progress,
    with_valid: bool = False,
    model_name: str | None = None,
    with_encoder: bool = False,
    alias: str = "candidate",
    name: str | None = None,
) -> dict[str, Any]:
    """Trains `config` on the path that a sweep's trial takes, and tracks it as a run of experiment `train`.

    Args:
        with_valid: the final model: the validation utterances are trained on too. The test split stays untouched.
        model_name: registers the model under this name.
        with_encoder: as `sweeps.registry.register.register`.
        alias: likewise.
        name: of the folder; one of a training that was stopped is gone on with. None: a new folder.

    Returns:
        What `edp-sweep train --json` prints.

    Raises:
        UserError: before anything was made.
        TrialError: when the training failed, with the reason.
    """
    spec = load_config(config, overrides)
    if model_name is not None:
        check_model_name(model_name)
    check_encoders([spec])
    check_memory([spec], spec.training.workers)
    when = f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    brought_down(storage)
    origin = origin_of(config, storage)
    if origin is None and (picked_of := sweep_named_in(config)) and not (storage / picked_of).is_dir():
        progress.say(
            f"{config} was picked of sweep {picked_of}, which is not in {storage}: this training is no part of its ε "
            "there (--storage)"
        )
    made = Sweep(storage, f"train-{name}") if name else Sweep.new(storage, f"train-{folder_name(config.stem)}-{when}")
    uri = check_store(tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or default_tracking_uri(storage))
    prepared, corpora = open_corpora(spec, made.cache, made.folder, progress.say)
    if not with_valid:
        check_batches([spec], num_privacy_units(spec, prepared, corpora))
    if origin is not None and not _same_people(origin, spec, storage):
        if spec.training.method != "sgd":
            progress.say(f"another corpus than that of sweep {origin.sweep}: this training is no part of its ε")
        origin = None
    trained_on = ("train", "valid") if with_valid else ("train",)
    model = tracker = None
    try:
        with claimed(made.folder, made.name), ray_session(made.log, progress.say):
            placed = placement(spec.training, ResourcesSpec(), SearchSpec(concurrency=1))
            tracker = Tracker(uri, "train", storage / "mlflow-artifacts", progress.say)
            _begin(made, spec, origin)
            progress.say(f"training {config}: {placed.line}; Ray's log: {made.log}")
            tags = trial_tags(made.name, spec) | {"role": "train", "trained_on": "+".join(trained_on)}
            with open_job(tracker, made.name, params=flat(spec.model_dump(mode="json")), tags=tags) as tracked:
                result = _trained(spec, made, prepared, corpora, placed, tracked, progress, with_valid)
                tracked.close(spec, made.folder, result)
        if model_name is not None:
            try:
                if tracked.run_id is None:
                    raise UserError(f"--register = {model_name!r}: the tracking store did not take the run")
                model = register(
                    model_name,
                    tracker=tracker,
                    run_id=tracked.run_id,
                    folder=made.folder,
                    features=prepared.corpus / "features",
                    spec=spec,
                    metrics=result.metrics,
                    cost=_cost(origin, storage),
                    with_encoder=with_encoder,
                    alias=alias,
                    trained_on=" and ".join(trained_on),
                )
            except UserError as error:
                raise UserError(f"{error}; what was trained is whole: {made.folder}") from None
    finally:
        # Also of what failed or was stopped: the steps that it took count.
        if origin is not None and tracker is not None:
            _tell_sweep(origin, made, model, storage, tracker, progress)
    return {
        **measured(result.metrics),
        "run_id": tracked.run_id,
        "ledger": result.ledger.model_dump(mode="json"),
        "output": str(made.folder),
        "tracking_uri": redacted(uri),
        "model": model.document() if model is not None else None,
    }


def _trained(
    spec: TrialSpec,
    made: Sweep,
    prepared: Prepared,
    corpora: dict[Path, Splits],
    placed: Placement,
    tracked: JobRun,
    progress: Progress,
    with_valid: bool,
) -> TrialResult:
    """Encodes what is missing, and trains on the workers that fit."""
    if with_valid and spec.canaries.count:
        say = "of the {:,} planted canaries half are trained on; --set canaries.count=0 leaves them out"
        progress.say(say.format(spec.canaries.count))
    progress.expect(1, 0, spec.training.epochs)
    encode_missing(spec, prepared, corpora, progress.say)
    remark = delta_remark(spec.edp.delta, spec.edp.unit, EncodedCorpus.open(prepared.corpus).size("train"))
    if remark and spec.training.method != "sgd":
        progress.say(remark)
    tracked.tracker.inputs(tracked.run_id, corpus_inputs(spec, prepared.corpus, prepared.shadow))

    def on_epoch(epoch: int, metrics: Metrics) -> None:
        progress.epoch("training", spec.training.epochs, epoch, metrics)
        tracked.epoch(epoch, metrics)

    job = TrialJob(spec, prepared.corpus, made.folder, prepared.attack, prepared.coins, with_valid)
    with worker_group(made, placed, progress) as workers, stall_reporter(progress, placed.group):
        ensure_attack(spec, prepared, made.folder / "shadow", workers.run, progress.epoch)
        return workers.run(job, on_epoch)


def _begin(made: Sweep, spec: TrialSpec, origin: Origin | None) -> None:
    """What the folder holds before anything is trained."""
    if not (made.folder / "config.yaml").exists():
        write_ledger(Ledger(), made.folder)  # so that a folder without one has lost it
        keep_corpora(made.folder, spec)
    write_yaml(spec, made.folder / "config.yaml")
    if origin is not None:
        write_origin(made.folder, origin)


def _tell_sweep(
    origin: Origin, made: Sweep, model: Registered | None, storage: Path, tracker: Tracker, progress: Progress
) -> None:
    """That its configuration was trained again: it counts in the sweep's ε."""
    if model is not None:
        write_origin(made.folder, origin.model_copy(update={"model": model.uri}))
    try:
        tell_total(Sweep.existing(storage, origin.sweep), tracker)
    except UserError as error:
        progress.say(f"MLflow was not told the new ε of sweep {origin.sweep}: {error}")


def _same_people(origin: Origin, spec: TrialSpec, storage: Path) -> bool:
    """Whether it trains on the sweep's own corpus, privately: what it executes is then part of the sweep's ε.

    A sample of it, split otherwise, from another place or in another format, is of the same people, and so is what
    holds some of it. Where that is not known it is so.
    """
    if spec.training.method == "sgd":
        return False
    try:
        corpus = Sweep.existing(storage, origin.sweep).recipe.corpus
        if (spec.corpus.name, spec.corpus.path) == (corpus.name, corpus.path):
            return True
        whole = {"seed": 0, "utterances": None, "split": "paper"}
        mine, theirs = (one.model_copy(update=whole) for one in (spec.corpus, corpus))
        if corpus_digest(mine) == corpus_digest(theirs):
            return True
        if is_generated(mine) or is_generated(theirs):
            return False  # nobody's words, of which many are in every such corpus
        return is_shared(load_corpus(mine), load_corpus(theirs))
    except UserError:
        return True


def _cost(origin: Origin | None, storage: Path) -> float | None:
    """ε of the sweep that the configuration was picked of, this training among it; NaN where it is not known."""
    if origin is None:
        return None
    try:
        sweep = Sweep.existing(storage, origin.sweep)
        cost = epsilon_of_sweep(sweep, sweep.trials())
    except UserError:
        cost = None
    return math.nan if cost is None else cost
