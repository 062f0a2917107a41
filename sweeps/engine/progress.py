"""Progress for people: a live table in a terminal, plain lines elsewhere.

It is printed to standard error, so that standard output holds only the result.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from sweeps.text.columns import SER_HEADS, epsilon_legend, model_cells, model_heads
from sweeps.text.figures import FIGURES, deciding_cell, epsilon_words, params_text
from sweeps.text.terminal import figures_table, fitting, own_stderr, print_line
from trainables.records.job import News

if TYPE_CHECKING:  # Optuna takes half a second to import
    from optuna import Study
    from optuna.trial import FrozenTrial

    Callback = Callable[[Study, FrozenTrial], object]


_SHOWN = 18
"""Rows of the live table, which shows the newest trials."""

_COSTS = ("gpu_seconds", "worker_seconds")
_SHOWN_OF_EPOCHS = ("epsilon", "epsilon_user", "epsilon_paper", *_COSTS)


@dataclass
class _Row:
    name: str
    state: str
    params: dict[str, Any]
    epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    started: float = field(default_factory=time.monotonic)


class Progress:
    """The progress of a sweep's trials and other trainings. Used as a context while trials run.

    In a terminal, something always moves: the table of the trials or, within `doing`, a line that says what is done.

    Args:
        console: by default standard error as it is now, which `sweeps.engine.session.ray_session` redirects to a log.
        callbacks: called with study and trial when a trial has ended, as those of Optuna's `Study.optimize`.
    """

    def __init__(self, console: Console | None = None, callbacks: Sequence[Callback] = ()) -> None:
        own = own_stderr() if sys.stderr is sys.__stderr__ else sys.stderr  # a notebook has another
        self.console = console or Console(file=own, markup=False, emoji=False)
        self._callbacks, self._stdout = callbacks, sys.stdout
        self._rows: dict[int, _Row] = {}
        self._display: Live | None = None
        self._users = 0
        """Blocks that the display serves: those of `doing`, and the one of the trials."""
        self._step, self._step_began = Spinner("dots"), time.monotonic()
        self._what = ""
        self._in_trials = False
        self.wanted, self.epochs, self.already = 0, 0, 0
        self._began = time.monotonic()
        self.waiting: dict[str, float] = {}
        """The start (`time.monotonic`) of each wait for workers, by the name of the trial or training."""
        self._voice, self._silent = threading.RLock(), False

    def waits(self, what: str) -> None:
        """Record that `what` waits for its workers from now on."""
        self.waiting[what] = time.monotonic()

    def waits_no_more(self, what: str) -> None:
        """Record that the workers of `what` have started, or that it has ended."""
        self.waiting.pop(what, None)

    def news(self, what: str, news: News) -> None:
        """Show news of the workers of `what`."""
        if news.waits:
            self.waits(what)
        elif not news.line:
            self.waits_no_more(what)
        if news.line:
            self.say(f"{what}: {news.line}")

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show what is being done while the block runs, as `step` then changes it. Only a terminal shows it."""
        before = self._what
        self.step(what)
        self._show()
        try:
            yield
        finally:
            self._hide()
            self.step(before)

    def step(self, what: str) -> None:
        """Say what is being done from now on."""
        self._what, self._step_began = what, time.monotonic()

    def _show(self) -> None:
        with self._voice:
            self._users += 1
            if self._display is None and self.console.is_terminal:
                # What libraries print in the terminal stands above it. What they print while Ray runs goes to a log.
                self._display = Live(
                    console=self.console,
                    get_renderable=self._shown,
                    transient=True,
                    redirect_stdout=sys.stdout.isatty(),
                    redirect_stderr=sys.stderr.isatty(),
                )
                self._display.start(refresh=True)

    def _hide(self) -> None:
        with self._voice:
            self._users -= 1
            if self._users <= 0:
                self.close()

    def close(self) -> None:
        """End what is shown live. What the table shows stays."""
        display, self._display = self._display, None
        in_trials, self._in_trials = self._in_trials, False  # a table that is too tall cannot be taken back
        if display is not None:
            display.stop()
            if in_trials:
                self.console.print(self._table())

    def _shown(self) -> RenderableType:
        if self._in_trials:
            return self._table()
        what, began = self._what, self._step_began
        for waits, since in list(self.waiting.items())[:1]:
            what, began = f"{waits}: waiting for its workers", since
        self._step.update(text=f"{what}, {time.monotonic() - began:.0f} s")
        return self._step

    def expect(self, trials: int, already: int, epochs: int) -> None:
        """Set the number of trials, the number that have already ended, and the epochs of each if none are searched."""
        self.wanted, self.already, self.epochs = trials, already, epochs

    def say(self, line: str) -> None:
        """Print one line."""
        with self._voice:
            if not self._silent:
                print_line(self.console, line)

    def last_words(self, line: str) -> None:
        """Print the error that ends the process, and nothing that other threads say after it."""
        with self._voice:
            print_line(self.console, f"edp-sweep: {line}", style="bold red")
            self._silent = True

    def epoch(self, what: str, epochs: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Show an epoch of a training outside of the trials: the shadow model, the baseline, a single training."""
        valid = f", validation SER {FIGURES['valid_ser'].cell(metrics)}" if "valid_ser" in metrics else ""
        if dropped := metrics.get("dropped_gradients"):
            valid += f", {dropped:.0f} gradients so far were not finite and were dropped"
        self.say(
            f"{what}: epoch {epoch} of {epochs}, {metrics['epoch_seconds']:.1f} s, "
            f"loss {metrics['train_loss']:.3f}{valid}"
        )

    def trial(
        self,
        number: int,
        state: str,
        params: dict[str, Any] | None = None,
        metrics: Mapping[str, float] | None = None,
        reason: str = "",
        called: str | None = None,
    ) -> None:
        """Show a trial's new state.

        Args:
            called: the shown name; by default the number.
        """
        row = self._rows.setdefault(number, _Row(called or str(number), state, params or {}))
        row.state, row.reason = state, reason
        if state == "running":
            self.waits(f"trial {row.name}")
        elif state != "waiting":
            self.waits_no_more(f"trial {row.name}")
        if params is not None:
            row.params = params
        if metrics is not None:
            row.metrics = dict(metrics)
        if not (self._in_trials and self._display is not None) and state != "waiting":
            self.say(f"trial {row.name} {state}: {self._news(row)}")

    def call_back(self, study: Study, trial: FrozenTrial) -> None:
        """Call the callbacks with a trial that has ended. What they print is not sent to Ray's log."""
        with redirect_stdout(self._stdout):
            for callback in self._callbacks:
                callback(study, trial)

    def trial_epoch(self, number: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Show an epoch of a trial."""
        row = self._rows[number]
        row.epoch = epoch
        row.metrics = {"valid_ser": metrics["valid_ser"]}
        row.metrics |= {name: metrics[name] for name in _SHOWN_OF_EPOCHS if name in metrics}

    def __enter__(self) -> Progress:
        self._began, self._in_trials = time.monotonic(), True
        self._show()
        return self

    def __exit__(self, *error: Any) -> None:
        last = self._table() if self._display is not None else None
        self._in_trials = False
        self._hide()
        if last is not None:
            self.console.print(last)

    def _news(self, row: _Row) -> str:
        """Return the line about a trial's new state, after the state itself."""
        if row.state == "running":
            return params_text(row.params)
        if row.state == "interrupted":
            return f"saved after epoch {row.epoch} of {self._epochs_of(row)}"
        if "mia_auc" not in row.metrics:  # it was not measured
            return row.reason
        ser, auc = (deciding_cell(row.metrics, name) for name in ("ser", "mia_auc"))
        figures = (
            f"validation SER {ser}, MIA AUC {auc}, "
            f"{', '.join(epsilon_words(row.metrics))}, {row.metrics['trial_seconds']:.0f} s; {self._left()}"
        )
        return f"{row.reason}; {figures}" if row.reason else figures

    def _epochs_of(self, row: _Row) -> int:
        return int(row.params.get("training.epochs", self.epochs))

    def _left(self) -> str:
        """Return the number of trials that have not ended, with the time that they may take."""
        ended = sum(row.state in ("complete", "stopped", "failed", "refused") for row in list(self._rows.values()))
        left = self.wanted - self.already - ended
        if not ended or left <= 0:
            return f"{max(left, 0)} to go"
        seconds = (time.monotonic() - self._began) / ended * left
        return f"{left} to go, about {seconds / 60:.0f} min" if seconds > 90 else f"{left} to go, about {seconds:.0f} s"

    @property
    def _cost(self) -> str:
        """The metric of the cost column: GPU-seconds if any trial has used a GPU, else worker-seconds."""
        return _COSTS[0] if any(row.metrics.get(_COSTS[0]) for row in list(self._rows.values())) else _COSTS[1]

    def _table(self) -> Table:
        return fitting(self.console, (self._table_of(whole) for whole in (True, False)))

    def _table_of(self, whole: bool) -> Table:
        """Return the table of the newest trials, the last one first: a terminal with too few lines cuts the others off.

        Args:
            whole: False to leave out costs, and show a running trial's epochs as its state.
        """
        rows = sorted(self._rows.items(), reverse=True)[:_SHOWN]
        models = [row.metrics for _, row in rows]
        cost = self._cost.replace("_", "\n")
        heads = ["trial", "state", *(head for head in model_heads(models) if head != SER_HEADS[1])]
        if whole:
            heads[2:2] = ["epoch"]
            heads.append(cost)
        caption = epsilon_legend()
        table = figures_table(f"trials ({self._left()})", caption, heads, "configuration")
        table.columns[1].justify = "left"
        for _, row in rows:
            metrics, epochs = row.metrics, f"{row.epoch}/{self._epochs_of(row)}"
            cells = {
                "trial": row.name,
                "state": row.state if whole or row.state not in ("running", "interrupted") else epochs,
                "epoch": epochs,
                **model_cells(metrics),
                cost: f"{metrics[self._cost]:.0f}" if self._cost in metrics else "",
            }
            table.add_row(*(cells[head] for head in heads), row.reason or params_text(row.params))
        return table
