"""One training of a configuration, as a trial trains it, with its measurements; also that of the final model."""

from __future__ import annotations

import functools
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from edp.spec import UserError
from sweeps.config.choice import GIVEN, chosen_on, holds_for
from sweeps.config.loading import load_config, write_yaml
from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.config.spending import of_training
from sweeps.engine.dying import stop_requests
from sweeps.engine.finish import tell_total
from sweeps.engine.opening import Opening, Training
from sweeps.engine.progress import Progress
from sweeps.engine.session import worker_group
from sweeps.registry.register import Registered, register
from sweeps.results.snapshot import Snapshot
from sweeps.store.journal import corpus_of, now, read_journal, same_utterances
from sweeps.store.lock import claimed
from sweeps.store.picks import ORIGIN, RESULT, Origin, Trained, origin_of, read_picks, sweep_named_in
from sweeps.store.prepared import Prepared
from sweeps.store.storage import Place, chosen_tracking_uri
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import keep_corpora
from sweeps.text.figures import delta_remark, labels_field, measured
from sweeps.text.paths import check_model_name, folder_name
from sweeps.text.secrets import redacted
from sweeps.tracking.job_run import JobRun, corpus_inputs, open_job
from sweeps.tracking.run_tags import flat, trial_tags
from sweeps.tracking.store import check_store
from sweeps.tracking.tracker import Tracker
from trainables.config import TrialSpec
from trainables.corpora.load import check_private
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.records.files import write_json


def train(
    config: Path,
    overrides: list[str],
    *,
    storage: Path = Path("runs"),
    tracking_uri: str | None = None,
    progress: Progress | None = None,
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
    spec, progress = load_config(config, overrides), progress or Progress()
    check_private(spec.corpus)
    if model_name is not None:
        check_model_name(model_name)
    when = f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    origin = origin_of(config, storage)
    picked_of = sweep_named_in(config)
    if origin is None and picked_of is not None and not (storage / picked_of).is_dir():
        progress.say(
            f"{config} was picked from sweep {picked_of}, which is not in {storage} (--storage): this training is not "
            "counted in its ε"
        )
    made = Place(storage, f"train-{name}") if name else Place.new(storage, f"train-{folder_name(config.stem)}-{when}")
    uri = check_store(chosen_tracking_uri(tracking_uri, storage))
    parents = [picked_of] if picked_of is not None and spec.training.method != "sgd" else []
    opened = Opening(made, spec, progress, trials=[spec], with_valid=with_valid, parents=parents, alone=True)
    opened.recorder.check([of_training(spec, opened.units)], "this training", {made.folder: spec})
    choice = _choice(origin, spec, storage, with_valid)
    if origin is not None and (spec.training.method == "sgd" or not _same_people(origin, spec, storage)):
        if spec.training.method != "sgd":
            progress.say(f"another corpus than that of sweep {origin.sweep}: this training is not counted in its ε")
        origin = None
    trained_on = ("train", "valid") if with_valid else ("train",)

    released = f"final model of {picked_of}" if parents else None
    model = tracker = None
    try:
        with claimed(made.folder, made.name), stop_requests(made.folder), opened.on_ray():
            placed = opened.fit(f"training {config}", spec.training, ResourcesSpec(), SearchSpec(concurrency=1))
            tracker = Tracker(uri, "train", made.artifacts, progress.say)
            open_run = functools.partial(_open_run, tracker, opened, trained_on)
            training = Training("train", spec, made.folder, open_run, model=released)
            opened.begin(training)
            _keep(made.folder, spec, origin)
            progress.expect(1, 0, spec.training.epochs)
            opened.encode()
            examples = _examples(opened.prepared, with_valid)
            remark = delta_remark(spec.edp.delta, spec.edp.unit, examples)
            if remark and spec.training.method != "sgd":
                progress.say(remark)
            with worker_group(made, placed, ResourcesSpec(), progress) as workers:
                opened.teach(workers.run)
                progress.step("training")
                show = functools.partial(progress.epoch, "training", spec.training.epochs)
                result, tracked = opened.run(training, workers.run, show)
            ended = Trained(
                at=now(),
                run_id=tracked.run_id,
                metrics=result.metrics,
                trained_on=trained_on,
                examples=examples,
                choice=choice,
            )
            write_json(made.folder / RESULT, ended)
        if model_name is not None:
            try:
                if tracked.run_id is None:
                    raise UserError(f"--register = {model_name!r}: the tracking store did not take the run")
                model = register(
                    model_name,
                    tracker=tracker,
                    run_id=tracked.run_id,
                    folder=made.folder,
                    features=opened.prepared.corpus / "features",
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
            _tell_sweep(origin, made, model, tracker, progress)
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


def _open_run(tracker: Tracker, opened: Opening, trained_on: tuple[str, ...]) -> JobRun:
    name, spec, at = opened.place.name, opened.spec, opened.prepared
    tags = trial_tags(name, spec) | {"role": "train", "trained_on": "+".join(trained_on)}
    inputs = corpus_inputs(spec, at.corpus, at.shadow)
    return open_job(tracker, name, params=flat(spec.model_dump(mode="json")), tags=tags, inputs=inputs)


def _examples(prepared: Prepared, with_valid: bool) -> int:
    """Return the number of utterances to train on."""
    corpus = EncodedCorpus.open(prepared.corpus)
    return corpus.size("train") + (len(corpus.known("valid")) if with_valid else 0)


def _keep(folder: Path, spec: TrialSpec, origin: Origin | None) -> None:
    """Write the files that a training's folder has before the training begins."""
    if not (folder / "config.yaml").exists():
        keep_corpora(folder, spec)
    write_yaml(spec, folder / "config.yaml")
    if origin is not None:
        write_json(folder / ORIGIN, origin)


def _tell_sweep(origin: Origin, made: Place, model: Registered | None, tracker: Tracker, progress: Progress) -> None:
    """Update the sweep's ε, which counts this training of its configuration."""
    if model is not None:
        write_json(made.folder / ORIGIN, origin.model_copy(update={"model": model.uri}))
    try:
        tell_total(Sweep.existing(made.storage, origin.sweep), tracker)
    except UserError as error:
        progress.say(f"MLflow was not told the new ε of sweep {origin.sweep}: {error}")


def _same_people(origin: Origin, spec: TrialSpec, storage: Path) -> bool:
    """Return True if it trains on people of the sweep's corpus. If it is private, it then counts in the sweep's ε.

    If it cannot be found out whether these are the same people, the answer is True.
    """
    try:
        known = read_journal(storage).corpora
        other = corpus_of(Snapshot(Sweep.existing(storage, origin.sweep)).private_corpus, known, storage)
        mine = corpus_of(spec.corpus, known | {other.id: other}, storage)
        return same_utterances(mine, other) or other.id in mine.unknown
    except UserError:
        return True


def _choice(origin: Origin | None, spec: TrialSpec, storage: Path, with_valid: bool) -> str:
    """Return what chose the configuration, whether ε covers that and, with the validation split, whom ε holds for."""
    words, chosen_here = GIVEN, None
    if origin is not None:
        sweep = Sweep.existing(storage, origin.sweep)
        chosen_here = _same_people(origin, spec, storage)
        try:
            picks = [one for one in read_picks(sweep) if (one.trial, one.epoch) == (origin.trial, origin.epoch)]
            limits = {name for one in picks for name in one.limits}
            words = Snapshot(sweep).choice(limits) if chosen_here else chosen_on(sweep.recipe.corpus.name)
        except UserError:
            words = f"chosen in sweep {origin.sweep}, which cannot be read, so nothing says whether ε covers the choice"
    return f"{words}; {holds_for(chosen_here)}" if with_valid and spec.training.method != "sgd" else words


def _cost(origin: Origin | None, storage: Path) -> float | None:
    """Return ε of the sweep that the configuration was picked from, with this training; NaN if it is not known."""
    if origin is None:
        return None
    try:
        cost = Snapshot(Sweep.existing(storage, origin.sweep)).epsilon
    except UserError:
        cost = None
    return math.nan if cost is None else cost
