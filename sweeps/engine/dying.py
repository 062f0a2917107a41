"""All ways in which a sweep's process is ended: Ctrl-C, SIGTERM, `edp-sweep stop`, the death of Ray, and SIGKILL.

A driver stops its jobs at the end of their running epoch, says how to go on, and leaves. Without this file a driver
whose raylet has died waits for ever, one whose head has died is killed by Ray after a minute, with a line of C++, and
Ray's start and its calls lose signals.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NoReturn

import ray
from rich.console import Console

from sweeps.engine.watch import watched
from sweeps.store.lock import STOP
from sweeps.text.secrets import redacted
from sweeps.text.signals import BY_CTRL_C, handling, raise_terminated
from trainables.workers.job_queue import StopSignal
from trainables.workers.ray_internals import raylet_socket

Place = str | tuple[str, int]

_STOP_EVERY_S = 1.0
_LIVENESS_EVERY_S = 2.0
_MAX_REFUSED = 4
"""Refused connections in a row after which a process of Ray counts as gone."""
_MAX_SILENT = 60
"""Connections in a row without any answer after which its machine counts as gone, or out of reach."""
_FAREWELL_S = 60.0
"""Seconds that `on_death` may take, which may itself call Ray and never return."""

_SPEAK = """
import sys
if not sys.stdin.buffer.read():
    sys.stderr.write(sys.argv[1])
"""
"""A program that waits for its input to end, and prints its argument if nothing was written."""
_SHOW_CURSOR = "\x1b[?25h"
"""What makes a terminal show the cursor, which a live display hides."""


@contextmanager
def print_if_killed(line: str, console: Console) -> Iterator[Callable[[], None]]:
    """Have another process print `line` if this process ends within the block.

    Ray ends a driver at once, by C's `_exit`, if a call meets a raylet or an object store that has just died. No code
    of the driver runs then. SIGKILL does the same.

    Yields:
        A function that makes the other process silent, for a process that speaks for itself.
    """
    stream = None
    with suppress(AttributeError, OSError, ValueError):  # no stream of the system, such as a notebook's
        stream = console.file.fileno()
    if stream is None:
        yield lambda: None
        return
    text = f"{_SHOW_CURSOR if console.is_terminal else ''}\nedp-sweep: {redacted(line)}\n"
    command = [sys.executable, "-ISc", _SPEAK, text]
    with subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stderr=stream, start_new_session=True) as speaker:
        assert speaker.stdin is not None, "it is a pipe"
        pipe = speaker.stdin

        def cancel() -> None:
            with suppress(OSError, ValueError):  # it is closed, or the other process is gone
                pipe.write(b"\n")
                pipe.close()

        try:
            yield cancel
        finally:
            cancel()


@contextmanager
def stop_requests(folder: Path) -> Iterator[None]:
    """Send this process a Ctrl-C whenever the file `STOP` is in a sweep's folder while the block runs.

    Do nothing outside of the main thread: the Ctrl-C would end the program that called, and not the sweep. Where a
    process ignores Ctrl-C, as one that a shell started with `&` does, it is heard while the block runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    request = folder / STOP

    def look(done: threading.Event) -> None:
        while not done.wait(_STOP_EVERY_S):
            if request.exists():
                request.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGINT)

    with interruptible(), watched(look, "stop_requests"):
        yield
    if request.exists():  # asked in the last second: what would follow must not begin
        request.unlink(missing_ok=True)
        raise KeyboardInterrupt


@contextmanager
def ray_liveness(on_death: Callable[[str], None], last_words: Callable[[str], None]) -> Iterator[None]:
    """Watch Ray's head and this machine's raylet while the block runs. If one dies, exit this process with code 1.

    Args:
        on_death: see `leave`.
        last_words: see `leave`.
    """
    own = raylet_socket()
    places: dict[str, Place] = {}
    if own is not None:
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        places["Ray's head (GCS)"] = (host.strip("[]"), int(port))
        if os.path.exists(own):
            places["this machine's Ray (raylet)"] = own

    def watch(done: threading.Event) -> None:
        refused, silent = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
        while not done.wait(_LIVENESS_EVERY_S):
            for name, place in places.items():
                answer = _ask(place)
                refused[name] = refused[name] + 1 if answer == "refused" else 0
                silent[name] = silent[name] + 1 if answer == "silent" else 0
                if (refused[name] >= _MAX_REFUSED or silent[name] >= _MAX_SILENT) and not done.is_set():
                    leave(f"{name} is gone", on_death, last_words)

    with watched(watch, "ray_liveness"):
        yield


def leave(what: str, on_death: Callable[[str], None], last_words: Callable[[str], None], code: int = 1) -> NoReturn:
    """Exit this process, whatever its other threads do.

    Args:
        on_death: called with the reason from another thread, for at most a minute.
        last_words: called with the reason just before the exit.
    """
    farewell = threading.Thread(target=on_death, args=(what,), daemon=True)
    farewell.start()
    farewell.join(_FAREWELL_S)
    try:
        last_words(what)
    finally:
        os._exit(code)


def _ask(place: Place) -> Literal["here", "refused", "silent"]:
    """Try to connect to `place`. A busy process may be silent for a while."""
    kind = socket.AF_UNIX if isinstance(place, str) else (socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.settimeout(_LIVENESS_EVERY_S)
        try:
            one.connect(place)
        except (ConnectionRefusedError, FileNotFoundError):
            return "refused"
        except OSError:
            return "silent"
    return "here"


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, and Terminated on SIGTERM, while the block runs in the main thread."""
    with handling(signal.SIGINT, signal.default_int_handler), handling(signal.SIGTERM, raise_terminated):
        yield


@contextmanager
def stopping_jobs(
    stop_signal: StopSignal, say: Callable[[str], None], how_to_go_on: str, give_up: Callable[[], None]
) -> Iterator[None]:
    """Stop jobs at the end of their running epoch on the first Ctrl-C while the block runs; raise on the second.

    Args:
        stop_signal: stops the jobs.
        how_to_go_on: the command that continues them, as the end of the message.
        give_up: ends this process; called if the block does not end after the second Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left, calls, main = threading.Event(), 0, threading.main_thread().ident or 0

    def interrupted(number: int, frame: object) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyboardInterrupt

    def stop() -> None:
        stop_signal.send(BY_CTRL_C)
        say(f"stopping when the running epochs have ended and are saved; Ctrl-C again stops at once; {how_to_go_on}")

    def listen(arrivals: socket.socket) -> None:
        count = 0
        while numbers := arrivals.recv(1 << 10):
            before, count = count, count + numbers.count(signal.SIGINT)
            if before == 0 < count:
                stop()
            if count > 1:
                # Until it works: a destructor that runs in the main thread swallows what a handler raises. A signal,
                # because `_thread.interrupt_main` ends no waiting call.
                for _ in range(_INTERRUPTS):
                    if left.wait(_AGAIN_S):
                        return
                    signal.pthread_kill(main, signal.SIGINT)
                give_up()

    with _arrivals() as arrivals, handling(signal.SIGINT, interrupted):
        # A thread, because a handler may have interrupted a call to Ray, or a line that is being printed, and because
        # Python calls it once for two signals that arrive within one call to a C library.
        thread = threading.Thread(target=listen, args=(arrivals,), name="ctrl-c", daemon=True)
        thread.start()
        try:
            yield
        finally:
            left.set()
            arrivals.shutdown(socket.SHUT_RD)
            thread.join(_AGAIN_S)


_AGAIN_S = 0.5
"""Seconds between two interrupts of a main thread that still runs its block after the second Ctrl-C."""
_INTERRUPTS = 60
"""Interrupts after which the main thread counts as stuck."""


@contextmanager
def _arrivals() -> Iterator[socket.socket]:
    """Yield a socket that receives a byte, the signal's number, for each signal of this process."""
    arrivals, wakeup = socket.socketpair()
    with arrivals, wakeup:
        wakeup.setblocking(False)
        outer = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        try:
            yield arrivals
        finally:
            signal.set_wakeup_fd(outer)


@contextmanager
def own_answer(number: signal.Signals) -> Iterator[None]:
    """Restore this process's own handler of a signal, if it has one, after a block that installs another.

    A signal that arrives within the block is handled by the own handler at its end, even if the other handler raised:
    code that ignores exceptions, such as Ray's start, may lose that exception.
    """
    before = signal.getsignal(number)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _arrivals() as arrivals:
        arrivals.setblocking(False)
        left: SystemExit | None = None
        try:
            yield
        except SystemExit as leaving:
            left = leaving
        finally:
            signal.signal(number, before)
        with suppress(BlockingIOError):
            if number in arrivals.recv(1 << 10):
                before(number, None)
        if left is not None:
            raise left
