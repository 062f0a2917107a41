"""Reference models and predictions that attacks need, computed by Ray tasks and cached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ray
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec
from trainables.config import TrialSpec
from trainables.records.files import cause_of, one_line
from trainables.records.job import TrialError, TrialFailed
from trainables.training.references import Arrays, ReferenceModel, score_target, train_reference

_RETRIES = 5
"""Number of times that a task is repeated after its process died."""

_LOOK_SECONDS = 0.5


def train_references(reference_models: Sequence[ReferenceModel], resources: ResourcesSpec, console: Console) -> None:
    """Train the models whose predictions are missing, as many at once as fit the cluster, and show a progress bar.

    Raises:
        TrialError: if one cannot be trained, with the reason. Predictions of the others are kept.
    """
    missing = [reference_model for reference_model in reference_models if not reference_model.output.is_file()]
    if not missing:
        return
    waiting = [_train.options(**_share(model.spec, resources)).remote(model) for model in missing]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        title = f"{len(missing)} models that the attacks compare with"
        bar = progress.add_task(title, total=sum(reference_model.spec.training.epochs for reference_model in missing))
        left = list(waiting)
        try:
            while left:
                ready, left = ray.wait(left, num_returns=len(left), timeout=_LOOK_SECONDS)
                ray.get(ready)
                if ready and not console.is_terminal:
                    console.print(f"{len(missing) - len(left)} of {title} are trained", highlight=False)
                progress.update(bar, completed=sum(map(epochs_done, missing)))
        except ray.exceptions.RayTaskError as error:
            raise TrialError(f"a model that the attacks compare with: {_reason(error)}") from error
        except ray.exceptions.RayError as error:
            raise TrialError(
                f"a model that the attacks compare with: its process died {_RETRIES + 1} times "
                f"({type(error).__name__}); the models that were trained are kept"
            ) from error
        finally:
            for task in left:
                ray.cancel(task, force=True)


def predictions_of(spec: TrialSpec, corpus: Path, model_file: Path, resources: ResourcesSpec) -> Arrays:
    """Return the result of `score_target`, computed in a Ray task.

    Raises:
        TrialError: if the task fails, with the reason.
    """
    try:
        return ray.get(_score.options(**_share(spec, resources)).remote(spec, corpus, model_file))
    except ray.exceptions.RayTaskError as error:
        raise TrialError(f"the predictions of the model under attack: {_reason(error)}") from error


def _reason(error: ray.exceptions.RayTaskError) -> str:
    """Return the task's error in one line."""
    cause = cause_of(error)
    known = isinstance(cause, TrialFailed | UserError)
    return one_line(cause) if known else f"{type(cause).__name__}: {one_line(cause)}"


def _share(spec: TrialSpec, resources: ResourcesSpec) -> dict[str, float]:
    """Return the resources of one task: a CPU core and, unless `device` is cpu, a GPU if the cluster has one."""
    gpus = 0.0 if spec.training.device == "cpu" else ray.cluster_resources().get("GPU", 0.0)
    cpus = 1.0 if resources.cpus_per_worker == "auto" else resources.cpus_per_worker
    wanted = min(1.0, gpus) if resources.gpus_per_worker == "auto" else min(resources.gpus_per_worker, gpus)
    return {"num_cpus": min(cpus, ray.cluster_resources().get("CPU", 1.0)), "num_gpus": wanted}


def _progress_file(reference_model: ReferenceModel) -> Path:
    return reference_model.output.with_name(f".{reference_model.output.name}.epochs")


def epochs_done(reference_model: ReferenceModel) -> int:
    """Return the number of epochs that a model has been trained for."""
    if reference_model.output.is_file():
        return reference_model.spec.training.epochs
    try:
        return int(_progress_file(reference_model).read_text())
    except (OSError, ValueError):  # its training has not begun, or is writing the file
        return 0


@ray.remote(max_retries=_RETRIES)
def _train(reference_model: ReferenceModel) -> None:
    _threads()
    progress = _progress_file(reference_model)
    progress.parent.mkdir(parents=True, exist_ok=True)

    def on_epoch(done: int) -> None:
        progress.write_text(str(done))

    try:
        train_reference(reference_model, on_epoch)
    finally:
        progress.unlink(missing_ok=True)


@ray.remote(max_retries=_RETRIES)
def _score(spec: TrialSpec, corpus: Path, model_file: Path) -> Arrays:
    _threads()
    return score_target(spec, corpus, model_file)


def _threads() -> None:
    """Let PyTorch use as many threads as the task has CPU cores."""
    torch.set_num_threads(max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))))
