"""A sweep of which a process is killed at several moments, and which is resumed whenever it has stopped."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sweeps.store.journal import read_journal
from sweeps.store.sweep import Sweep
from tests.conftest import TINY_RECIPE
from tests.support.drivers import Driver, below, command_of, kill

EPOCHS, TRIALS = 20, 3
STEPS = 4
"""Steps of an epoch: of 54 training utterances, 16 a step."""

KINDS = {
    "driver": "",
    "gcs_server": "gcs/gcs_server ",
    "raylet": "/raylet/raylet ",
    "monitor": "_private/monitor.py ",
    "log_monitor": "_private/log_monitor.py ",
    "dashboard": "dashboard/dashboard.py ",
    "dashboard's heads": "ray-dashboard-",
    "resource tracker": "multiprocessing.resource_tracker ",
    "dashboard agent": "ray::DashboardAgent",
    "runtime environment agent": "ray::RuntimeEnvAgent",
    "job queue": "ray::JobQueue",
    "Train's controller": "ray::TrainController",
    "Train's coordinator": "ray::_AutoscalingCoordinatorActor",
    "Train's cleaner": "ray::PlacementGroupCleaner",
    "Train's synchronization": "ray::SynchronizationActor",
    "worker": "ray::RayTrainWorker",
    "trial's process": "ray::ImplicitFunc",
    "idle process": "ray::IDLE",
}
"""The processes of a sweep, and a part of their command line. All that match are killed."""


MOMENTS = {
    "start": ("trials/*", 0),
    "baseline": ("baseline", 3),
    "first trial": ("trials/*", 3),
    "second trial": ("trials/*", EPOCHS + 5),
    "last trial": ("trials/*", 2 * EPOCHS + 10),
}
"""The moments of a sweep: folders, and the number of epochs that are in them by then."""


@dataclass(frozen=True)
class Death:
    """A kill, and what came of it."""

    kind: str
    moment: str | None
    fate: str = ""
    """`went on`, `stopped: LINE`, or `fault: WHY`."""

    @property
    def held(self) -> bool:
        """True if no one was let down."""
        return not self.fate.startswith("fault")


class MortalSweep:
    """A sweep of three trials in `folder`, by drivers that each start a Ray of their own, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._where = folder, ("--storage", str(folder / "runs"))
        self._recipe = folder / "tiny.yaml"
        self._recipe.write_text(TINY_RECIPE)
        self.runs = folder / "runs" / "s"
        self._drivers: list[Driver] = []
        self.start()

    @property
    def driver(self) -> Driver:
        """The last driver."""
        return self._drivers[-1]

    def start(self) -> None:
        """Run the sweep, or resume it."""
        settings = {
            "training.epochs": EPOCHS,
            "training.workers": 1,
            "training.non_private.epochs": EPOCHS,
            "search.trials": TRIALS,
        }
        words = ["resume", "s", *self._where]
        if not (self.runs / "sweep.json").is_file():
            sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
            words = ["run", str(self._recipe), "--name", "s", *self._where, *sets]
        self._drivers.append(Driver(self._folder, None, *words))

    def close(self) -> None:
        """Kill what is left of it."""
        for driver in self._drivers:
            driver.kill_everything()

    @property
    def alive(self) -> bool:
        """True if its driver runs."""
        return self.driver.process.poll() is None

    def _has_come(self, moment: str) -> bool:
        folders, epochs = MOMENTS[moment]
        curves = self.runs.glob(f"{folders}/curve.json")
        return sum(len(json.loads(curve.read_text())) for curve in curves) >= epochs

    def killed(self, kind: str, moment: str, patience_s: float = 300) -> bool:
        """Kill what is of this kind once the moment has come; False if there is none."""
        end = time.monotonic() + patience_s
        while self.alive and time.monotonic() < end:
            if self._has_come(moment):
                pids = self._pids(kind)
                for pid in pids:
                    kill(pid)
                if pids:
                    return True
            time.sleep(0.05)
        return False

    def _pids(self, kind: str) -> list[int]:
        if not KINDS[kind]:
            return [self.driver.process.pid]
        return [pid for pid in below(self.driver.process.pid) if KINDS[kind] in command_of(pid)]

    def end(self, patience_s: float = 300) -> str:
        """Wait for the driver's end, and return why it is none that a user can live with; "" if it is."""
        limit = time.monotonic() + patience_s
        while (code := self.driver.process.poll()) is None:
            if time.monotonic() > limit:
                self.driver.kill_everything()
                return f"fault: it hangs; {self._last_line()}"
            time.sleep(0.2)
        self.driver.kill_everything()
        if code == 1:
            time.sleep(0.5)  # its last words may come from another process
        if code == -signal.SIGKILL:
            return "stopped: killed"
        if "Traceback" in self.driver.said() or "this is a bug" in self.driver.said():
            return f"fault: {self._last_line()}"
        if code == 0:
            return self.is_whole() or "went on"
        line = self._last_line()
        ways = ("go on with: edp-sweep resume s", "type the command again")
        return f"stopped: {line}" if code == 1 and any(way in line for way in ways) else f"fault: {code}, {line}"

    def _last_line(self) -> str:
        return (self.driver.said().splitlines() or [""])[-1]

    def is_whole(self) -> str:
        """Return what is wrong with a sweep that has ended: a trial is lost, failed, or trained or counted twice."""
        trials = Sweep.existing(self.runs.parent, self.runs.name).trials()
        if len(trials) != TRIALS:
            return f"fault: {len(trials)} trials"
        for trial in trials:
            steps = trial.ledger.steps if trial.ledger is not None else None
            if (trial.state, steps) != ("complete", EPOCHS * STEPS):
                return f"fault: trial {trial.number} is {trial.state} after {steps} steps"
        account = read_journal(self.runs.parent)
        recorded = [one.ledger for one in account.trainings.values() if one.begin.what == "trial"]
        same = not account.lost and recorded == [trial.ledger for trial in trials]
        return "" if same else "fault: the account does not have each trial once, with its ledger"


def walk(kind: str, folder: Path, moments: Iterable[str] = MOMENTS) -> Iterator[Death]:
    """Kill a kind of process at each moment of one sweep; resume it when it stops, and yield what came of each kill."""
    sweep, last = MortalSweep(folder), None
    try:
        for moment in (*moments, None):
            while not (killed := moment is not None and sweep.killed(kind, moment)):
                if moment is not None and sweep.alive:
                    break  # there is no such process
                fate = sweep.end()
                if last is not None:
                    yield replace(last, fate=fate)
                    last = None
                elif fate.startswith("fault"):
                    yield Death("", str(moment), fate)
                if not fate.startswith("stopped"):
                    return
                sweep.start()
            if last is not None and killed:
                yield replace(last, fate="went on")
            last = Death(kind, moment) if killed else last
    finally:
        sweep.close()
