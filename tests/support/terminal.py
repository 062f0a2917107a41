"""A terminal: what its rows show after everything that was written to it."""

from __future__ import annotations

import io
import re

_CODE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")

RESULT = {
    "valid_ser": 0.2,
    "ser": 0.3,
    "mia_auc": 0.55,
    "epsilon": 15.0,
    "epsilon_paper": 4.0,
    "trial_seconds": 40.0,
    "gpu_seconds": 66.0,
}
"""Figures of a trial that has ended, for what a terminal shows of it."""


class Terminal(io.StringIO):
    """What is on a screen of so many columns, without an end to its height, after everything that was written to it."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns
        self.rows = [""]
        self._row, self._column = 0, 0

    def write(self, text: str) -> int:
        place = 0
        while place < len(text):
            if code := _CODE.match(text, place):
                self._obey(code[2], int(code[1]) if code[1].isdigit() else 1)
                place = code.end()
            else:
                self._put(text[place])
                place += 1
        return len(text)

    def _obey(self, letter: str, number: int) -> None:
        if letter == "A":
            self._row = max(0, self._row - number)
        elif letter == "K":
            self.rows[self._row] = ""

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
            return
        if letter == "\n" or self._column == self._columns:
            self._row, self._column = self._row + 1, 0
            if self._row == len(self.rows):
                self.rows.append("")
        if letter != "\n":
            row = self.rows[self._row]
            self.rows[self._row] = row[: self._column].ljust(self._column) + letter + row[self._column + 1 :]
            self._column += 1
