"""MLflow runs of trials, baselines, and trainings of `train` and `confirm`, from opening to end."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mlflow.entities import Dataset, DatasetInput, InputTag

from sweeps.store.plans import plan_of
from sweeps.store.sweep import Sweep
from sweeps.text.figures import metrics_line, privacy_statement
from sweeps.tracking.run_tags import NOTE, environment_tags, flat, trial_tags
from sweeps.tracking.tracker import Figures, Tracker
from trainables.config import CorpusSpec, TrialSpec
from trainables.corpora import is_generated
from trainables.features.encoded_corpus import SPLITS, EncodedCorpus
from trainables.records.job import Outcome, TrialError, TrialResult, TrialStopped
from trainables.records.pareto import Metrics, on_validation

ARTIFACTS = ("ledger.json", "config.yaml", "model.pt")

_TOGETHER_S = 3.0
"""Seconds after which what a run has waiting is sent, at least."""

PLAIN = "no formal guarantee (plain SGD)"


class JobRun:
    """An open run. A `with` block that raises ends it, as KILLED if the job was stopped and as FAILED otherwise.

    Args:
        failures: the tracker's count before the run was opened.
        trial: sweep and number of the trial whose kept epochs are candidates, each with a LoggedModel; None: of none.
        corpus: the data set that its metrics are measured on.
        params: parameters that the run lacks. They are sent with the first figures.
        new: True if the run was created now.

    Attributes:
        run_id: None if the store did not take the run.
    """

    def __init__(
        self,
        tracker: Tracker,
        run_id: str | None,
        failures: int,
        trial: tuple[str, int] | None = None,
        corpus: Dataset | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        new: bool = False,
    ) -> None:
        self.tracker, self.run_id, self._failures = tracker, run_id, failures
        self._trial, self._corpus, self._params, self._new = trial, corpus, params, new
        self._kept, self._flushed = list[Figures](), time.monotonic()

    @property
    def whole(self) -> bool:
        """True if the store has taken the run and everything that was sent to it since its opening."""
        return self.run_id is not None and self.tracker.failures == self._failures

    def epoch(self, epoch: int, metrics: Metrics) -> None:
        """Log the metrics of an epoch that has ended. Epochs that follow each other fast are sent together."""
        self._kept.append(Figures(metrics, epoch))
        self.send_due()

    def send_due(self) -> None:
        """Send what has waited for long enough."""
        if (self._kept or self._params) and time.monotonic() - self._flushed >= _TOGETHER_S:
            self.flush()

    def flush(self, tags: Mapping[str, str] | None = None) -> None:
        """Send what waits, with `tags`."""
        self._flushed = time.monotonic()
        kept, params = self._kept, self._params
        self._kept, self._params = [], None
        self.tracker.log(self.run_id, *kept, params=params, tags=tags)

    def epochs(self, metrics: Mapping[int, Metrics], models: Mapping[int, str] | None = None) -> None:
        """Log the metrics of epochs that have ended, unless the run has them already."""
        if metrics:
            self.tracker.log_missing(self.run_id, metrics, models)

    def close(
        self,
        spec: TrialSpec,
        folder: Path,
        outcome: Outcome,
        state: str = "complete",
        artifacts: tuple[str, ...] = ARTIFACTS,
        *,
        told_before: bool = False,
    ) -> None:
        """Log the final metrics of a training's kept epochs, each at its own step, its artifacts and its state.

        Args:
            folder: the training's own.
            outcome: its result; a string is the reason of a failure.
            artifacts: files of `folder` to copy, if they exist.
            told_before: whether the run may hold some metrics already, or lack those of an epoch; all that it lacks are
                then sent. Otherwise the epochs have sent theirs of the validation split.
        """
        if isinstance(outcome, TrialResult):
            tags = self._result(spec, outcome, told_before)
        else:
            tags, artifacts = {"reason": outcome}, ("ledger.json",)
        for name in artifacts:
            self.files([folder / name], "model" if name == "model.pt" else None)
        self.end({**tags, "state": state}, "FAILED" if state == "failed" else "FINISHED")

    def _result(self, spec: TrialSpec, result: TrialResult, told_before: bool) -> dict[str, str]:
        """Log or keep the final metrics, and return the run's last tags."""
        last = result.epochs[-1].epoch if result.epochs else spec.training.epochs
        steps = {kept.epoch: kept.metrics for kept in result.epochs[:-1]} | {last: result.metrics}
        models: dict[int, str] = {}
        if self._trial is not None:
            sweep, number = self._trial
            names = {step: f"{number}{'' if step == last else f'@{step}'}" for step in steps}
            tags = {"sweep": sweep, "trial": str(number), "corpus": spec.corpus.name, "method": spec.training.method}
            models = self.tracker.candidates(self.run_id, names, tags, new=self._new)
        if told_before:
            self.epochs(steps, models)
        else:
            for step, metrics in steps.items():
                final = {name: metrics[name] for name in metrics.keys() - on_validation(metrics)}
                self._kept.append(Figures(final, step, models.get(step), self._corpus))
        early = {"reason": result.stopped} if result.stopped else {}
        privacy = privacy_statement(result.metrics, spec.edp, spec.corpus) if spec.training.method != "sgd" else PLAIN
        figures = metrics_line(result.metrics, spec.corpus)
        note = f"{figures}.\n\n{spec.training.method}, {spec.training.epochs} epochs. {privacy}."
        return result.tags | early | {"privacy": privacy, NOTE: note}

    def files(self, files: Iterable[Path], folder: str | None = None) -> None:
        """Copy the files that exist to the run's artifacts, below `folder` there."""
        for file in files:
            self.tracker.artifact(self.run_id, file, folder)

    def end(self, tags: Mapping[str, str], status: str = "FINISHED") -> None:
        """Set the run's last tags, `state` among them, and end it: FINISHED, FAILED or KILLED.

        A trial's run that lacks something is left RUNNING: `sweeps.engine.finish` sends it again.
        """
        self.flush(tags)
        if self.whole or self._trial is None:
            self.tracker.end(self.run_id, status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        stopped = isinstance(error, TrialStopped | KeyboardInterrupt | SystemExit)
        reason = {"reason": str(error)} if isinstance(error, TrialError) else {}
        self.end({"state": "stopped" if stopped else "failed", **reason}, "KILLED" if stopped else "FAILED")


def open_job(
    tracker: Tracker,
    name: str,
    *,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    parent: str | None = None,
    note: str | None = None,
    inputs: Sequence[DatasetInput] = (),
    run_id: str | None = None,
    trial: tuple[str, int] | None = None,
    at_once: bool = True,
) -> JobRun:
    """Open the run of a job, or reopen `run_id`.

    Args:
        at_once: whether to send the parameters now, and not with the first figures.
        trial: see `JobRun`.
        parent: id of the parent run.
        note: the run's description, in Markdown.
        inputs: the corpora that the job reads.
    """
    failures, new = tracker.failures, run_id is None
    if run_id is not None:
        tracker.reopen(run_id, params)
    else:
        run_id = tracker.start(name, params=params if at_once else {}, tags=tags, parent=parent, note=note)
        if inputs:
            tracker.inputs(run_id, inputs)
    waiting, corpus = params if new and not at_once else None, inputs[0].dataset if inputs else None
    return JobRun(tracker, run_id, failures, trial, corpus, params=waiting, new=new)


def trial_run_name(sweep: Sweep, number: int) -> str:
    """Return the name of a trial's run, by which the run is found if its id is not known."""
    return f"{sweep.name}-{number:03d}"


def open_refused_run(
    tracker: Tracker, sweep: Sweep, number: int, params: dict[str, Any], reason: str, run_id: str | None = None
) -> str | None:
    """Create the run of a refused configuration, with the reason, and end it; return its id.

    Args:
        run_id: of a run that exists, and has not ended.
    """
    run_id = run_id or tracker.start(
        f"{trial_run_name(sweep, number)} refused",
        params={"trial": number, **params},
        tags=environment_tags()
        | {"role": "trial", "sweep": sweep.name, "state": "refused", "reason": reason, "pareto": "false"},
        parent=sweep.record.run_id,
    )
    tracker.end(run_id, "KILLED")
    return run_id


def open_trial_run(
    tracker: Tracker,
    sweep: Sweep,
    number: int,
    params: dict[str, Any],
    spec: TrialSpec,
    inputs: Sequence[DatasetInput] = (),
    run_id: str | None = None,
    *,
    at_once: bool = True,
) -> JobRun:
    """Open a trial's run, below the sweep's, with its configuration; or reopen `run_id`.

    Args:
        at_once: see `open_job`.
    """
    # Every child has the same keys: MLflow's parallel coordinates drop a key that some run lacks.
    shown = flat(spec.edp.model_dump(mode="json")) | flat(spec.training.model_dump(mode="json"), "training.")
    shown |= {k: v for k, v in params.items() if k not in shown}
    return open_job(
        tracker,
        trial_run_name(sweep, number),
        params={"trial": number, **shown},
        tags=trial_tags(sweep.name, spec) | {"role": "trial", "pareto": "false"},
        parent=sweep.record.run_id,
        inputs=inputs,
        run_id=run_id,
        trial=(sweep.name, number),
        at_once=at_once,
    )


def open_baseline_run(sweep: Sweep, spec: TrialSpec, tracker: Tracker, inputs: Sequence[DatasetInput] = ()) -> JobRun:
    """Open the baseline's run, with its configuration: the one in the sweep's record, or a new one."""
    return open_job(
        tracker,
        f"{sweep.name} SGD baseline",
        params={"method": "sgd"} | flat(spec.training.model_dump(mode="json"), "training."),
        tags=trial_tags(sweep.name, spec) | {"role": "baseline", "privacy": PLAIN},
        inputs=inputs,
        run_id=sweep.record.baseline_run_id,
    )


def send_baseline(sweep: Sweep, spec: TrialSpec, tracker: Tracker) -> None:
    """Send what MLflow lacks of a baseline that has ended."""
    record = sweep.record
    if record.baseline is None or record.baseline_tracked:
        return
    known = record.baseline_run_id
    run = JobRun(tracker, known, tracker.failures) if known else open_baseline_run(sweep, spec, tracker)
    metrics = {name: value for name, value in record.baseline.items() if name != "run_id"}
    run.epochs({spec.training.epochs: metrics})
    run.files([sweep.folder / "baseline" / "model.pt"], "model")
    run.end({"state": "complete"})
    sweep.update(
        baseline={**record.baseline, "run_id": run.run_id}, baseline_run_id=run.run_id, baseline_tracked=run.whole
    )


def corpus_inputs(spec: TrialSpec, corpus: Path, shadow: Path, sweep: Sweep | None = None) -> list[DatasetInput]:
    """Return the corpus and the shadow's as MLflow's inputs: name, digest and sizes, never an utterance.

    Args:
        corpus, shadow: folders of the encoded corpora. A corpus that is not encoded yet is left out.
        sweep: the sweep whose trials read the corpus: it is private, unless the sweep chooses on a public proxy corpus.
    """
    use = "private" if sweep is None or plan_of(sweep) is None else "proxy"
    found = ((corpus, spec.corpus, use), (shadow, spec.shadow.corpus, "shadow"))
    return [_input(folder, corpus, use) for folder, corpus, use in found if (folder / "meta.json").is_file()]


@functools.lru_cache(maxsize=64)
def _input(folder: Path, corpus: CorpusSpec, use: str) -> DatasetInput:
    encoded = EncodedCorpus.open(folder)
    kind = "generated" if is_generated(corpus) else "files" if corpus.path is not None else "public"
    return DatasetInput(
        Dataset(
            name=corpus.name,
            digest=encoded.digest[:32],  # MLflow takes at most 36 characters
            source_type=kind,
            source=json.dumps(corpus.model_dump(mode="json", exclude={"path", "columns", "budget"})),
            profile=json.dumps({split: encoded.size(split) for split in SPLITS}),
        ),
        [InputTag("mlflow.data.context", use)],
    )
