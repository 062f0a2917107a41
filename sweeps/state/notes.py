"""What people wrote of a sweep's configurations: a file in its folder, beside the record."""

from __future__ import annotations

import json

from edp.spec import UserError
from sweeps.state.flock import one_at_a_time
from sweeps.state.sweep import Sweep
from trainables.records.files import atomic_write, read_json_if_any

NOTES = "notes.json"
LONGEST = 4000
"""Characters of a note."""


def read_notes(sweep: Sweep) -> dict[str, str]:
    """Notes by a point's name.

    Raises:
        BrokenFile: for a file that is not whole.
    """
    return read_json_if_any(sweep.folder / NOTES, dict[str, str]) or {}


def write_note(sweep: Sweep, name: str, text: str) -> None:
    """Keeps a note on the point of that name; an empty one takes it away.

    Raises:
        UserError: where it is too long.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise UserError(f"note = {len(text):,} characters: allowed: up to {LONGEST:,}")
    with one_at_a_time(sweep.folder):
        notes = {key: note for key, note in read_notes(sweep).items() if key != name} | ({name: text} if text else {})
        with atomic_write(sweep.folder / NOTES) as partial:
            partial.write_text(json.dumps(notes, indent=1, ensure_ascii=False), encoding="utf-8")
