"""The permissions of a storage folder: its files are the owner's alone, or those of the folder's group.

They hold private utterances, and models and attack features that come from them. The process' umask is set, so that
databases, logs and artifacts that libraries write have them too, and processes that start from here.
"""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

_OWNER, _GROUP = 0o077, 0o007
_SHARED = stat.S_ISGID | stat.S_IRWXG


def own_files(folder: Path) -> None:
    """Let this process make files below `folder` for their owner alone, or for the group of a shared folder.

    Args:
        folder: a folder of a storage folder; what is missing of it does not count.
    """
    there = next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), folder)
    os.umask(_GROUP if there.is_dir() and is_shared(there) else _OWNER)


def is_shared(folder: Path) -> bool:
    """Return True for a folder of `share`, or one below it: they have its setgid bit."""
    return stat.S_IMODE(folder.stat().st_mode) & _SHARED == _SHARED


def share(folder: Path) -> None:
    """Make a folder if it is missing, and share with its group what will be made there."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(stat.S_ISGID | 0o770)


def unfinished_folder(parent: Path, prefix: str) -> Path:
    """Make a folder of a new name in `parent`, with the permissions of its files.

    Those of `tempfile.mkdtemp` would keep the workers of a group's other members out.
    """
    folder = parent / f"{prefix}{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    return folder
