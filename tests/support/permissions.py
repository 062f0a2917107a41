"""What a user may not read, also where the tests run as root, who may."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    """Inside the block nobody may list `folder` or open what is in it."""
    root = os.geteuid() == 0
    mode = folder.stat().st_mode
    folder.chmod(0)
    if root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(mode)
