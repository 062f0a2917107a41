"""`edp-sweep train`: train one configuration as a trial does, and measure it; also for the final model."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edp.spec import UserError
from sweeps.commands.console import err, load, out, print_json
from sweeps.commands.options import (
    PATH,
    RUNS,
    AliasOption,
    Json,
    Register,
    Set,
    Shared,
    Storage,
    TrackingUri,
    WithEncoder,
    registered_alias,
)
from sweeps.config.choice import GIVEN, chosen_on, holds_for
from sweeps.config.loading import load_config, write_yaml
from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.run.progress import Progress
from sweeps.store.corpora import keep_corpora
from sweeps.store.lock import claimed
from sweeps.store.storage import chosen_tracking_uri, share_storage
from sweeps.text.figures import delta_remark, labels_field, measured, metrics_line
from sweeps.text.paths import check_model_name, folder_name
from sweeps.text.secrets import redacted
from sweeps.text.terminal import print_line
from sweeps.tracking.run_tags import flat, trial_tags
from trainables.config import TrialSpec
from trainables.corpora.load import check_private
from trainables.corpora.types import Splits
from trainables.records.epochs import read_ledger
from trainables.records.job import TrialError, TrialJob, TrialResult, TrialStopped
from trainables.records.pareto import Metrics

if TYPE_CHECKING:
    from sweeps.registry.register import Registered
    from sweeps.run.prepare import Prepared
    from sweeps.run.recorder import Recorder
    from sweeps.run.resources import Placement
    from sweeps.store.picks import Origin
    from sweeps.store.sweep import Sweep
    from sweeps.tracking.job_run import JobRun
    from sweeps.tracking.tracker import Tracker


def train_command(
    config: Annotated[Path, typer.Argument(help="a configuration file, as `pick` writes it", **PATH)],
    settings: Set = None,
    on: Annotated[
        Literal["train", "train+valid"], typer.Option(help="splits to train on; train+valid is for the final model")
    ] = "train",
    standard_split: Annotated[
        bool,
        typer.Option(
            "--standard-split", help="use the corpus' published split; short for --set corpus.split=published"
        ),
    ] = False,
    model_name: Register = None,
    alias: AliasOption = None,
    with_encoder: WithEncoder = False,
    storage: Storage = RUNS,
    shared: Shared = False,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Train one configuration as a trial does, and measure it."""
    called = registered_alias(model_name, alias, with_encoder)
    overrides = (settings or []) + (["corpus.split=published"] if standard_split else [])
    spec = load_config(config, overrides)  # so that a wrong configuration is refused before the slow imports
    load("sweeps.registry.register")
    if shared:
        share_storage(storage)
    progress = Progress(err)
    with progress.doing("reading the corpora"):
        result = train(
            config,
            overrides,
            storage=storage,
            tracking_uri=tracking_uri,
            progress=progress,
            with_valid=on == "train+valid",
            model_name=model_name,
            with_encoder=with_encoder,
            alias=called,
        )
    if as_json:
        print_json(result)
        return
    figures = metrics_line(result["metrics"], spec.corpus)
    print_line(out, f"{figures}; the configuration was {result['choice']}")
    print_line(out, f"model and ledger in {result['output']}; MLflow run {result['run_id']}")
    if result["model"] is not None:
        print_line(out, f"registered as {result['model']['uri']}")


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
    """Train `config` as a sweep trains a trial, and track it as a run of experiment `train`.

    Args:
        with_valid: True to train on the validation utterances, too, as the final model does. The test split is not
            trained on.
        model_name: name in the registry to register the model under; None: the model is not registered.
        with_encoder: see `sweeps.registry.register.register`.
        alias: see `sweeps.registry.register.register`.
        name: name of the folder, in which a stopped training goes on; None: a new folder.

    Returns:
        The document that `edp-sweep train --json` prints.

    Raises:
        UserError: if the training cannot start. Nothing was made then.
        TrialError: if the training failed, with the reason.
    """
    from sweeps.config.spending import of_training
    from sweeps.config.target_epsilon import check_batches
    from sweeps.registry.register import register
    from sweeps.run.capacity import check_memory
    from sweeps.run.prepare import check_encoders, num_privacy_units, open_corpora
    from sweeps.run.recorder import Recorder
    from sweeps.run.resources import placement
    from sweeps.run.session import ray_session
    from sweeps.store.picks import Trained, now, origin_of, sweep_named_in
    from sweeps.store.sweep import Sweep
    from sweeps.tracking.job_run import open_job
    from sweeps.tracking.store import check_store
    from sweeps.tracking.tracker import Tracker

    spec = load_config(config, overrides)
    check_private(spec.corpus)
    if model_name is not None:
        check_model_name(model_name)
    check_encoders([spec])
    check_memory([spec], spec.training.workers)
    when = f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    origin = origin_of(config, storage)
    picked_of = sweep_named_in(config)
    if origin is None and picked_of is not None and not (storage / picked_of).is_dir():
        progress.say(
            f"{config} was picked from sweep {picked_of}, which is not in {storage} (--storage): this training is not "
            "counted in its ε"
        )
    made = Sweep(storage, f"train-{name}") if name else Sweep.new(storage, f"train-{folder_name(config.stem)}-{when}")
    uri = check_store(chosen_tracking_uri(tracking_uri, storage))
    prepared, corpora = open_corpora(spec, made.cache, made.folder, progress.say)
    units = num_privacy_units(spec, prepared, corpora, with_valid)
    if not with_valid:
        check_batches([spec], units)
    parents = [picked_of] if picked_of is not None and spec.training.method != "sgd" else []
    recorder = Recorder(made.folder, spec, progress.say, parents=parents, alone=True)
    recorder.check([of_training(spec, units)], "this training", [made.folder])
    choice = _choice(origin, spec, storage, with_valid)
    if origin is not None and (spec.training.method == "sgd" or not _same_people(origin, spec, storage)):
        if spec.training.method != "sgd":
            progress.say(f"another corpus than that of sweep {origin.sweep}: this training is not counted in its ε")
        origin = None
    trained_on = ("train", "valid") if with_valid else ("train",)
    model = tracker = None
    progress.step("starting Ray")
    try:
        with claimed(made.folder, made.name), ray_session(made.log, progress.say):
            placed = placement(spec.training, ResourcesSpec(), SearchSpec(concurrency=1))
            tracker = Tracker(uri, "train", storage / "mlflow-artifacts", progress.say)
            _begin(made, spec, origin, recorder, units)
            progress.say(f"training {config}: {placed.line}; Ray's log: {made.log}")
            tags = trial_tags(made.name, spec) | {"role": "train", "trained_on": "+".join(trained_on)}
            with open_job(tracker, made.name, params=flat(spec.model_dump(mode="json")), tags=tags) as tracked:
                try:
                    result = _trained(spec, made, prepared, corpora, placed, tracked, progress, with_valid)
                except TrialStopped:
                    raise
                except TrialError:
                    recorder.end(made.folder, read_ledger(made.folder))
                    raise
                recorder.end(made.folder, result.ledger, f"final model of {picked_of}" if parents else None)
                tracked.close(spec, made.folder, result)
            examples = _examples(prepared, with_valid)
            Trained(
                at=now(),
                run_id=tracked.run_id,
                metrics=result.metrics,
                trained_on=trained_on,
                examples=examples,
                choice=choice,
            ).write(made.folder)
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
                    choice=choice,
                    examples=examples,
                )
            except UserError as error:
                raise UserError(f"{error}; the trained model is in {made.folder}") from None
    finally:
        # A training that failed or was stopped counts, too: it has taken steps on the private data.
        if origin is not None and tracker is not None:
            _tell_sweep(origin, made, model, storage, tracker, progress)
    return {
        **measured(result.metrics),
        "choice": choice,
        **labels_field(spec.corpus),
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
    """Encode the corpora that are not encoded yet, and train."""
    from sweeps.run.prepare import encode_missing, ensure_attack
    from sweeps.run.session import worker_group
    from sweeps.run.watch import stall_reporter
    from sweeps.tracking.job_run import corpus_inputs

    progress.expect(1, 0, spec.training.epochs)
    progress.step("encoding the corpora")
    encode_missing(spec, prepared, corpora, progress.say)
    remark = delta_remark(spec.edp.delta, spec.edp.unit, _examples(prepared, with_valid))
    if remark and spec.training.method != "sgd":
        progress.say(remark)
    tracked.tracker.inputs(tracked.run_id, corpus_inputs(spec, prepared.corpus, prepared.shadow))

    def on_epoch(epoch: int, metrics: Metrics) -> None:
        progress.epoch("training", spec.training.epochs, epoch, metrics)
        tracked.epoch(epoch, metrics)

    job = TrialJob(spec, prepared.corpus, made.folder, prepared.attack, prepared.coins, with_valid)
    with worker_group(made, placed, ResourcesSpec(), progress) as workers, stall_reporter(progress, placed.group):
        progress.step("training the shadow model")
        ensure_attack(spec, prepared, made.folder / "shadow", workers.run, progress.epoch)
        progress.step("training")
        return workers.run(job, on_epoch)


def _examples(prepared: Prepared, with_valid: bool) -> int:
    """Return the number of utterances to train on."""
    from trainables.features.encoded_corpus import EncodedCorpus

    corpus = EncodedCorpus.open(prepared.corpus)
    return corpus.size("train") + (len(corpus.known("valid")) if with_valid else 0)


def _begin(made: Sweep, spec: TrialSpec, origin: Origin | None, recorder: Recorder, units: int) -> None:
    """Write the files that the folder has before the training begins, and its begin in the account.

    Raises:
        UserError: if another process has spent the corpus' budget since it was checked.
    """
    from sweeps.store.picks import write_origin

    if (why := recorder.begin("train", spec, units=units, folder=made.folder)) is not None:
        raise UserError(why)
    if not (made.folder / "config.yaml").exists():
        keep_corpora(made.folder, spec)
    write_yaml(spec, made.folder / "config.yaml")
    if origin is not None:
        write_origin(made.folder, origin)


def _tell_sweep(
    origin: Origin, made: Sweep, model: Registered | None, storage: Path, tracker: Tracker, progress: Progress
) -> None:
    """Update the sweep's ε, which counts this training of its configuration."""
    from sweeps.commands.finish import tell_total
    from sweeps.store.picks import write_origin
    from sweeps.store.sweep import Sweep

    if model is not None:
        write_origin(made.folder, origin.model_copy(update={"model": model.uri}))
    try:
        tell_total(Sweep.existing(storage, origin.sweep), tracker)
    except UserError as error:
        progress.say(f"MLflow was not told the new ε of sweep {origin.sweep}: {error}")


def _same_people(origin: Origin, spec: TrialSpec, storage: Path) -> bool:
    """Return True if it trains on people of the sweep's corpus. If it is private, it then counts in the sweep's ε.

    If it cannot be found out whether these are the same people, the answer is True.
    """
    from sweeps.store.journal import corpus_of, read_journal, same_utterances
    from sweeps.store.plans import private_corpus
    from sweeps.store.sweep import Sweep

    try:
        known = read_journal(storage).corpora
        other = corpus_of(private_corpus(Sweep.existing(storage, origin.sweep)), known, storage)
        mine = corpus_of(spec.corpus, known | {other.id: other}, storage)
        return same_utterances(mine, other) or other.id in mine.unknown
    except UserError:
        return True


def _choice(origin: Origin | None, spec: TrialSpec, storage: Path, with_valid: bool) -> str:
    """Return what chose the configuration, whether ε covers that and, with the validation split, whom ε holds for."""
    from sweeps.results.cost import choice_of
    from sweeps.store.sweep import Sweep

    words, chosen_here = GIVEN, None
    if origin is not None:
        sweep = Sweep.existing(storage, origin.sweep)
        chosen_here = _same_people(origin, spec, storage)
        try:
            words = choice_of(sweep) if chosen_here else chosen_on(sweep.recipe.corpus.name)
        except UserError:
            words = f"chosen in sweep {origin.sweep}, which cannot be read, so nothing says whether ε covers the choice"
    return f"{words}; {holds_for(chosen_here)}" if with_valid and spec.training.method != "sgd" else words


def _cost(origin: Origin | None, storage: Path) -> float | None:
    """Return ε of the sweep that the configuration was picked from, with this training; NaN if it is not known."""
    from sweeps.results.cost import epsilon_of_sweep
    from sweeps.store.sweep import Sweep

    if origin is None:
        return None
    try:
        sweep = Sweep.existing(storage, origin.sweep)
        cost = epsilon_of_sweep(sweep, sweep.trials())
    except UserError:
        cost = None
    return math.nan if cost is None else cost
