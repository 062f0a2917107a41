"""The live part of a terminal: a line about what is being done, or a table, redrawn in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import Segment


class _Rewrapped(LiveRender):
    """Rich's record of what it has drawn, corrected for a terminal that has become narrower since.

    A terminal then breaks long lines again. Rich would erase too few lines and leave the others behind.
    """

    def __init__(self, console: Console) -> None:
        super().__init__("")
        self._console = console
        self._widths: list[int] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = [part for part in super().__rich_console__(console, options) if isinstance(part, Segment)]
        self._widths = [Segment.get_line_length(line) for line in Segment.split_lines(drawn)]
        return drawn

    def position_cursor(self) -> Control:
        """Return the codes that erase what was drawn, and lead to its first line."""
        if self._shape is not None:
            width = max(1, self._console.width)
            self._shape = width, sum(max(1, -(-drawn // width)) for drawn in self._widths)
        return super().position_cursor()


class Display(Live):
    """A live display of what `get_renderable` returns, erased at its end.

    What libraries print in the terminal stands above it. What they print while Ray runs goes to a log, and stays there.
    """

    def __init__(self, console: Console, get_renderable: Callable[[], RenderableType]) -> None:
        super().__init__(
            console=console,
            get_renderable=get_renderable,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live_render = _Rewrapped(console)
