"""`edp-sweep pretrain`: train an encoder on public corpora, in this process, for private recipes to start from."""

from __future__ import annotations

import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import PATH, RUNS, Json, Set, Shared, Storage, TrackingUri
from sweeps.config.loading import PRETRAINING, load_pretraining, recipe_names
from sweeps.store.lock import driver_lock
from sweeps.store.storage import chosen_tracking_uri, share_storage
from sweeps.text.paths import check_model_name
from sweeps.text.secrets import redacted
from sweeps.text.signals import interrupt_of
from sweeps.text.terminal import print_line
from sweeps.tracking.run_tags import environment_tags, flat
from trainables.config.keys import cache_key, identity
from trainables.pretraining.spec import PretrainSpec
from trainables.records.files import disk_full, read_json_if_any, why_not

if TYPE_CHECKING:
    from sweeps.registry.register import Registered
    from sweeps.tracking.tracker import Tracker

_LINE_S = 30.0
"""Seconds between two lines of progress."""
_LOG_STEPS = 20
"""Steps between two metrics in MLflow."""
_ARTIFACT = "encoder"

Show = Callable[[int, float], None]


def pretrain_command(
    recipe: Annotated[
        str,
        typer.Argument(
            help=f"the path of a YAML file, or the name of a recipe: {', '.join(recipe_names(PRETRAINING))}"
        ),
    ],
    settings: Set = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="folder to make; by default STORAGE/encoders/RECIPE", **PATH)
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option("--register", metavar="MODEL", help="add the encoder to MLflow's registry under this name"),
    ] = None,
    storage: Storage = RUNS,
    shared: Shared = False,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Train an encoder on public corpora, for `model.pretrained` of private recipes.

    After a stop, the same command goes on.
    """
    load_pretraining(recipe, settings or [])  # so that a wrong recipe is refused before the slow imports
    if shared:
        share_storage(storage)
    found = pretrain(
        recipe,
        settings or [],
        output=output,
        storage=storage,
        tracking_uri=tracking_uri,
        console=err,
        model_name=model_name,
    )
    if as_json:
        print_json(found)
        return
    loss = found["loss"][-1][1]
    line = f"the encoder is in {found['output']}: {found['steps']:,} steps, mean loss of the last steps {loss:.3f}"
    print_line(out, f"{line}; use it with: --set {shlex.quote('model.pretrained=' + found['output'])}")
    if found["model"] is not None:
        print_line(out, f"registered as {found['model']['uri']}")


def pretrain(
    recipe: str,
    overrides: list[str],
    *,
    output: Path | None,
    storage: Path,
    tracking_uri: str | None,
    console: Console,
    model_name: str | None = None,
) -> dict[str, Any]:
    """Train an encoder on public corpora, and register it if a name is given.

    A training that was stopped or killed goes on when it is started again. A complete one is not repeated, but can
    still be registered.

    Args:
        output: the new folder; None: a folder in the storage, named after the recipe.
        console: shows the progress.
        model_name: name in the registry to register the encoder under; None: it is not registered.

    Returns:
        The document that `edp-sweep pretrain --json` prints: `pretraining.json`, and the places of folder, run and
        registered version.

    Raises:
        UserError: if the training cannot start, or if the registry does not take the encoder.
        KeyboardInterrupt: if it was stopped by Ctrl-C or SIGTERM; the steps that were done are kept.
    """
    from sweeps.store.storage import check_storage
    from sweeps.tracking.job_run import open_job
    from sweeps.tracking.tracker import Tracker
    from trainables.features.compute_states import encoder_digest
    from trainables.pretraining.data import make_pool, read_utterances
    from trainables.pretraining.run import (
        PretrainingStopped,
        describe,
        device_of,
        pieces_of,
        start_of,
        train,
        write_folder,
    )

    stem, spec = load_pretraining(recipe, overrides)
    if model_name is not None:
        check_model_name(model_name)
    folder = (output or storage / "encoders" / stem).resolve()
    earlier = _same_before(folder, spec)
    device_of(spec.training.device)
    pieces, encoder = pieces_of(spec), start_of(spec)
    corpora = [read_utterances(corpus, f"corpora.{i}") for i, corpus in enumerate(spec.corpora)]
    pool, digest = make_pool(spec.corpora, corpora, pieces), encoder_digest(encoder)
    if earlier is not None and (earlier["started_from"]["sha256"], earlier["corpora"]) != (digest, list(pool.corpora)):
        raise _taken(folder, "from another starting point or other corpora")
    check_storage(storage)
    uri = chosen_tracking_uri(tracking_uri, storage)
    tracker = Tracker(uri, "pretrain", storage / "mlflow-artifacts", console.print)
    work = storage.resolve() / "cache" / f"pretraining-{_key(spec, digest, list(pool.corpora))}"
    total = sum(stage.steps for stage in spec.stages)
    if earlier is None:
        print_line(console, _beginning(spec, pool.corpora, work))
    else:
        print_line(console, f"{folder} holds this encoder already: nothing is left to train")
        if model_name is None:
            return earlier | {"output": str(folder), "run_id": None, "tracking_uri": redacted(uri), "model": None}
    with driver_lock(work, stem):
        tags = {**environment_tags(), "role": "pretrain", "objective": spec.objective, "state": "running"}
        tags |= {f"corpus.{corpus['name']}": str(corpus["digest"]) for corpus in pool.corpora}
        with open_job(tracker, folder.name, params=flat(spec.model_dump(mode="json")), tags=tags) as tracked:
            about = earlier
            if about is None:
                with _interruptible() as asked, _shown(console, total) as show:

                    def on_step(step: int, loss: float) -> None:
                        show(step, loss)
                        if step % _LOG_STEPS == 0 or step == total:
                            tracked.epoch(step, {"loss": loss})

                    try:
                        record, names = train(
                            spec, pool, encoder, work / "checkpoint.pt", on_step=on_step, stopped=lambda: bool(asked)
                        )
                    except PretrainingStopped:
                        print_line(console, "stopped; the same command goes on from here")
                        raise interrupt_of(asked[0]) from None
                about = describe(spec, pool, record, digest)
                try:
                    write_folder(folder, encoder, pieces, spec, about, corpora, names)
                except OSError as error:
                    if disk_full(error) is not None:
                        raise
                    raise UserError(f"output = {str(folder)!r}: {why_not(error)}; allowed: a new folder") from None
            tracked.files(sorted(folder.iterdir()), _ARTIFACT)
            try:
                model = _register(tracker, tracked.run_id, model_name, folder, about) if model_name else None
            except UserError as error:
                raise UserError(f"{error}; the trained encoder is in {folder}") from None
            tracked.end({"state": "complete"})
    shutil.rmtree(work, ignore_errors=True)
    return {
        **about,
        "output": str(folder),
        "run_id": tracked.run_id,
        "tracking_uri": redacted(uri),
        "model": model.document() if model is not None else None,
    }


def _same_before(folder: Path, spec: PretrainSpec) -> dict[str, Any] | None:
    """Return the record of a complete pretraining with these settings in `folder`; None if there is no folder.

    Raises:
        UserError: if the folder holds anything else.
    """
    from trainables.pretraining.overlap import ABOUT
    from trainables.pretraining.run import has_settings_of

    if not folder.exists():
        return None
    about = read_json_if_any(folder / ABOUT, dict[str, Any]) if folder.is_dir() else None
    if about is None:
        raise _taken(folder, "and holds no pretrained encoder")
    if not has_settings_of(spec, about):
        raise _taken(folder, "with other settings")
    return about


def _taken(folder: Path, what: str) -> UserError:
    """Return the error for an output folder that is there already."""
    return UserError(f"output = {str(folder)!r}: it is there already, {what}; allowed: a new folder (--output)")


def _key(spec: PretrainSpec, digest: str, corpora: list[dict[str, str | int]]) -> str:
    """Return the key of a checkpoint: a digest of everything that changes the result of the training."""
    settings = identity(spec, {"description", "corpora", "model.pretrained", "training.checkpoint_minutes"})
    return cache_key(settings, digest, corpora)


def _beginning(spec: PretrainSpec, corpora: tuple[dict[str, str | int], ...], work: Path) -> str:
    """Return the first line of progress: objective, starting point and corpora."""
    held = ", ".join(f"{corpus['name']} {corpus['utterances']:,}" for corpus in corpora)
    goes_on = "; going on from a checkpoint" if (work / "checkpoint.pt").is_file() else ""
    return f"{spec.objective} pretraining from {spec.model.pretrained}: {held} utterances{goes_on}"


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Yield the list of signals that came: the first ends the training after its running step, a second at once."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        if asked:
            raise interrupt_of(number)
        asked.append(number)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(console: Console, total: int) -> Iterator[Show]:
    """Yield a function that shows a step: with a bar in a terminal, else with a line every half minute."""
    if console.is_terminal:
        columns = (TextColumn("step"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Progress(*columns, TimeRemainingColumn(elapsed_when_finished=True), console=console) as progress:
            task = progress.add_task("", total=total)
            yield lambda step, loss: progress.update(task, completed=step, description=f"loss {loss:.3f}")
        return
    first: list[float] = []
    said = [time.monotonic()]

    def line(step: int, loss: float) -> None:
        now = time.monotonic()
        first.extend([now, step] if not first else [])
        if now - said[0] < _LINE_S and step != total:
            return
        said[0] = now
        left = (now - first[0]) / max(1, step - first[1]) * (total - step)
        print_line(console, f"step {step:,} of {total:,}, loss {loss:.3f}, about {left / 60:.0f} min left")

    yield line


def _register(tracker: Tracker, run_id: str | None, name: str, folder: Path, about: dict[str, Any]) -> Registered:
    """Add the encoder, which is an artifact of its run, to the registry, with the corpora's digests as tags."""
    from mlflow.exceptions import MlflowException

    from sweeps.registry.register import Registered, ensure_model

    if run_id is None:
        raise UserError(f"--register = {name!r}: the tracking store did not take the run")
    tags = {f"corpus.{corpus['name']}": corpus["digest"] for corpus in (*about["corpora"], *about["earlier_corpora"])}
    try:
        ensure_model(tracker, name, "An encoder trained on public corpora, for model.pretrained of private recipes.")
        source = f"{tracker.client.get_run(run_id).info.artifact_uri}/{_ARTIFACT}"
        version = tracker.client.create_model_version(
            name, source, run_id, tags={"started_from": about["started_from"]["sha256"], **tags}
        )
    except (MlflowException, OSError) as error:
        reason = redacted(" ".join(str(error).split()), tracker.uri)[:200]
        raise UserError(f"--register = {name!r}: {redacted(tracker.uri)} does not take it ({reason})") from None
    size = sum(file.stat().st_size for file in folder.iterdir())
    return Registered(name, int(version.version), size / 1e6)
