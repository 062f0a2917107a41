"""What a person sees while a sweep runs: a live table in a terminal, plain lines elsewhere. On standard error, so that
standard output holds the result alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sweeps.formatting.columns import auc_cell, epsilon_cells, epsilon_heads, epsilon_legend, ser_cell
from sweeps.formatting.figures import epsilon_words, params_text
from sweeps.formatting.lines import print_line
from sweeps.formatting.tables import figures_table, fitting
from sweeps.progress.prometheus import Meter
from trainables.records.job import News

_SHOWN = 18
"""Rows of the live table: the newest trials."""


_COSTS = ("gpu_seconds", "worker_seconds")
_SHOWN_OF_EPOCHS = ("epsilon", "epsilon_user", "epsilon_paper", *_COSTS)


@dataclass
class _Row:
    called: str
    state: str
    params: dict[str, Any]
    epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    started: float = field(default_factory=time.monotonic)


class Progress:
    """Shows trials as they go. Used as a context around the time when trials run.

    Args:
        console: where to.

    Attributes:
        waiting: what waits for its workers, and since when (`time.monotonic`).
        meter: told what is shown of trials, to export it.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._rows: dict[int, _Row] = {}
        self._live: Live | None = None
        self.wanted, self.epochs, self.already = 0, 0, 0
        self._began = time.monotonic()
        self.waiting: dict[str, float] = {}
        self.meter: Meter | None = None
        self._voice, self._silent = threading.RLock(), False

    def waits(self, what: str) -> None:
        """Something waits for its workers from now on."""
        self.waiting[what] = time.monotonic()

    def waits_no_more(self, what: str) -> None:
        """Its workers are there, or it has ended."""
        self.waiting.pop(what, None)

    def news(self, what: str, news: News) -> None:
        """Something happened to the workers of `what`."""
        if news.waits:
            self.waits(what)
        elif not news.line:
            self.waits_no_more(what)
        if news.line:
            self.say(f"{what}: {news.line}")

    def expect(self, trials: int, already: int, epochs: int) -> None:
        """How much there is to do, and how much was done before."""
        self.wanted, self.already, self.epochs = trials, already, epochs

    def say(self, line: str) -> None:
        """One line of news."""
        with self._voice:
            if not self._silent:
                print_line(self.console, line)

    def last_words(self, line: str) -> None:
        """A failure that ends everything: whatever other threads still have to say, nothing is shown after it."""
        with self._voice:
            print_line(self.console, f"edp-sweep: {line}", style="bold red")
            self._silent = True

    def epoch(self, what: str, epochs: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """One of the `epochs` of what is not a sweep's trial: the shadow model, the baseline, a single training."""
        valid = f", validation SER {metrics['valid_ser']:.1%}" if "valid_ser" in metrics else ""
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
        """A trial's state has changed.

        Args:
            called: what a person knows it by, where `number` is none of a sweep's.
        """
        row = self._rows.setdefault(number, _Row(called or str(number), state, params or {}))
        row.state, row.reason = state, reason
        if state == "running":
            self.waits(f"trial {row.called}")
        elif state != "waiting":
            self.waits_no_more(f"trial {row.called}")
        if params is not None:
            row.params = params
        if metrics is not None:
            row.metrics = dict(metrics)
        if self.meter is not None:
            self.meter.trial(number, state, metrics)
        if self._live is not None:
            self._live.update(self._table())
        elif state in ("running", "interrupted", "complete", "stopped", "failed", "refused"):
            self.say(f"trial {row.called} {state}: {self._news(row)}")

    def trial_epoch(self, number: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """A trial has done an epoch."""
        row = self._rows[number]
        if self.meter is not None:
            self.meter.epoch(metrics)
        row.epoch = epoch
        row.metrics = {"ser": metrics["valid_ser"]}
        row.metrics |= {name: metrics[name] for name in _SHOWN_OF_EPOCHS if name in metrics}
        if self._live is not None:
            self._live.update(self._table())

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self.meter is not None:
            self.meter.start()
        if self.console.is_terminal:
            self._live = Live(self._table(), console=self.console, refresh_per_second=2)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.meter is not None:
            self.meter.stop()
        if self._live is not None:
            self._live.update(self._table())
            self._live.__exit__(*error)
            self._live = None

    def _news(self, row: _Row) -> str:
        if row.state == "running":
            return params_text(row.params)
        if row.state == "interrupted":
            return f"saved after epoch {row.epoch} of {self.epochs}"
        if "mia_auc" not in row.metrics:  # it was not measured
            return row.reason
        figures = (
            f"SER {row.metrics['ser']:.1%}, MIA AUC {row.metrics['mia_auc']:.3f}, "
            f"{', '.join(epsilon_words(row.metrics))}, {row.metrics['trial_seconds']:.0f} s; {self._left()}"
        )
        return f"{row.reason}; {figures}" if row.reason else figures

    def _left(self) -> str:
        ended = sum(row.state in ("complete", "stopped", "failed", "refused") for row in self._rows.values())
        left = self.wanted - self.already - ended
        if not ended or left <= 0:
            return f"{max(left, 0)} to go"
        seconds = (time.monotonic() - self._began) / ended * left
        return f"{left} to go, about {seconds / 60:.0f} min" if seconds > 90 else f"{left} to go, about {seconds:.0f} s"

    @property
    def _cost(self) -> str:
        """GPU-seconds where there are GPUs, else the workers'."""
        return _COSTS[0] if any(row.metrics.get(_COSTS[0]) for row in self._rows.values()) else _COSTS[1]

    def _table(self) -> Table:
        return fitting(self.console, (self._table_of(whole) for whole in (True, False)))

    def _table_of(self, whole: bool) -> Table:
        """Where it is not whole, costs are left out, and a trial that has not ended has its epochs for a state."""
        rows = sorted(self._rows.items())[-_SHOWN:]
        models = [row.metrics for _, row in rows]
        cost = self._cost.replace("_", "\n")
        heads = ["trial", "state", "SER", "MIA\nAUC", *epsilon_heads(models)]
        if whole:
            heads[2:2] = ["epoch"]
            heads.append(cost)
        caption = epsilon_legend(models, "No audit so far.")
        table = figures_table(f"trials ({self._left()})", caption, heads, "configuration")
        table.columns[1].justify = "left"
        for _, row in rows:
            metrics, epochs = row.metrics, f"{row.epoch}/{self.epochs}"
            cells = {
                "trial": row.called,
                "state": row.state if whole or row.state not in ("running", "interrupted") else epochs,
                "epoch": epochs,
                "SER": ser_cell(metrics),
                "MIA\nAUC": auc_cell(metrics),
                **epsilon_cells(metrics),
                cost: f"{metrics[self._cost]:.0f}" if self._cost in metrics else "",
            }
            table.add_row(*(cells[head] for head in heads), row.reason or params_text(row.params))
        return table
