"""A sweep on Ray, from its prepared corpora to its front, and what ends it early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from sweeps.commands.attack_run import attack_front, not_attacked
from sweeps.commands.finish import finish
from sweeps.commands.stopping import SweepStopped, how_to_go_on
from sweeps.config.recipe import Recipe
from sweeps.config.space import bound_combinations
from sweeps.run.prepare import Prepared, encode_missing, ensure_attack, open_corpora
from sweeps.run.progress import Progress
from sweeps.run.resources import Placement
from sweeps.run.session import interruptible, ray_session, stopping_jobs, worker_group
from sweeps.run.trials import release_best, run_baseline, run_trials
from sweeps.run.watch import ray_liveness, stall_reporter
from sweeps.store.sweep import Sweep
from sweeps.text.secrets import redacted
from sweeps.text.signals import stopped_by
from sweeps.tracking.job_run import corpus_inputs
from sweeps.tracking.tracker import Tracker
from trainables.config import TrialSpec
from trainables.corpora.types import Splits
from trainables.records.files import disk_full
from trainables.records.job import TrialStopped


def bound_trials(recipe: Recipe) -> Iterator[TrialSpec]:
    """Yield the trials whose searched settings are at a bound each, without those that do not fit together."""
    for params in bound_combinations(recipe.dimensions, recipe.shapes):
        with suppress(ValidationError):
            yield recipe.trial(params)


def run_to_end(
    sweep: Sweep,
    recipe: Recipe,
    prepared: Prepared,
    corpora: dict[Path, Splits],
    placed: Placement,
    tracker: Tracker,
    progress: Progress,
    command: str,
) -> None:
    """Train shadow model, baseline and trials, attack the front where the recipe asks for it, and write the end.

    Args:
        command: the one that goes on with the sweep where it is stopped.

    Raises:
        TrialError: when the shadow model or the baseline cannot be trained.
        SweepStopped: when it was stopped.
    """
    state, error, how = "failed", None, how_to_go_on(command)

    def ray_died(what: str) -> None:
        progress.__exit__()
        _finish(sweep, recipe, tracker, "stopped", what, progress)

    def last_words(what: str) -> None:
        progress.last_words(f"{what}; {how}")

    try:
        with ray_liveness(ray_died, last_words), stall_reporter(progress, placed.group), interruptible():
            base = recipe.baseline()
            progress.expect(sweep.record.wanted, 0, recipe.training.epochs)
            trials = bound_trials(recipe)
            encode_missing(base, prepared, corpora, progress.say, trials)
            tracker.inputs(sweep.record.run_id, corpus_inputs(base, prepared.corpus, prepared.shadow))
            with (
                worker_group(sweep, placed, progress) as workers,
                stopping_jobs(workers.stop_signal, progress.say, how),
            ):
                ensure_attack(base, prepared, sweep.folder / "shadow", workers.run, progress.epoch)
                if sweep.record.baseline is None:
                    run_baseline(sweep, base, prepared, workers.run, tracker, progress)
                run_trials(sweep, recipe, prepared, placed, workers, tracker, progress)
            state = "finished"
            if recipe.search.secret:
                sweep.update(state=state)
                release_best(sweep, tracker)
            if recipe.attacks.at_end:
                attack_front(sweep, prepared, tracker, progress)
    except KeyboardInterrupt as interrupt:
        state = "stopped"
        raise SweepStopped(stopped_by(interrupt), how) from None
    except SystemExit:  # raised by Ray in a call that waits when Ray is gone; `ray_liveness` may notice later
        state, error = "stopped", "Ray is gone"
        raise SweepStopped(error, how) from None
    except TrialStopped as stopped:
        state, error = "stopped", str(stopped)
        raise SweepStopped(error, how) from None
    except Exception as problem:
        error = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        if (full := disk_full(problem)) is not None:
            state, error = "stopped", full
            raise SweepStopped(full, how) from None
        raise
    finally:
        _finish(sweep, recipe, tracker, state, error, progress)


def attack_rest(sweep: Sweep, recipe: Recipe, tracker: Tracker, progress: Progress) -> None:
    """Attack the points of a finished sweep's front that its end has left out, as when one attack failed."""
    if not not_attacked(sweep):
        return
    base = recipe.baseline()
    prepared, corpora = open_corpora(base, sweep.cache, sweep.folder, progress.say)
    with ray_session(sweep.log, progress.say):
        encode_missing(base, prepared, corpora, progress.say, bound_trials(recipe))
        attack_front(sweep, prepared, tracker, progress)


def _finish(sweep: Sweep, recipe: Recipe, tracker: Tracker, state: str, error: str | None, progress: Progress) -> None:
    """Call `finish`. On a full disk, leave out what cannot be written: the study is whole either way."""
    try:
        sweep.update(error=redacted(error) if error is not None else None)
        finish(sweep, recipe, tracker, state, progress)
    except Exception as problem:
        if disk_full(problem) is None:
            raise
