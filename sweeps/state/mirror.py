"""A storage folder kept in an object store: it comes down before a command reads it, and goes up as it changes.

The store holds files by their content (`blobs/`), and generations (`generations/`): each says which files the folder
has, and of which content. A generation is written when all that it names is there, and never changed, so that half of
an upload is never seen, and the one before stays whole. Who writes one holds the lease, and has all of the one before.

Of two machines' changes to different files both stay; to one file, the second is refused.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from filelock import FileLock
from pydantic import ValidationError

from edp.spec import UserError
from sweeps.state.bucket import Bucket, StoreError
from sweeps.state.flock import LOCK, is_locked
from sweeps.state.generations import OWN, Generation, Kept, Look, State, blob, look, stat_of
from sweeps.state.lease import Lease, leave_lease, read_lease, take_lease
from trainables.records.files import atomic_write, read_json_if_any

Say = Callable[[str], None]

_TRIES = 3


class Mirror:
    """A working folder, and the store that keeps what is in it.

    Args:
        address: of the store.
        say: told what takes its time.
        folder: on this machine, or on a disk that all machines of its cluster see.

    Raises:
        StoreError: for what is no store's address.
    """

    def __init__(self, address: str, say: Say, folder: Path) -> None:
        self.bucket, self.folder, self.say = Bucket(address), folder.resolve(), say
        self.elsewhere: Lease | None = None
        """Of another machine, as it was when the folder came down."""
        (self.folder / OWN).mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / OWN / "lock")
        self.place = f"{_identity(self.folder / OWN / 'id')} on {socket.gethostname()}"

    def pull(self) -> None:
        """Brings down what the store has and this folder lacks. Nobody else writes while this folder has the lease.

        Raises:
            UserError: where a file has changed here and there, or the store was replaced.
            StoreError: where it does not answer, or has lost something.
        """
        lease = read_lease(self.bucket)
        if lease is not None and lease.place == self.place and (self.folder / OWN / "state.json").exists():
            return  # whoever holds it may be busy with what goes up
        self.elsewhere = lease
        self.catch_up()

    def catch_up(self) -> None:
        """As `pull`, whoever has the lease.

        Raises:
            UserError, StoreError: as `pull`.
        """
        with self._lock:
            for left in reversed(range(_TRIES)):
                try:
                    self._pull(self._newest())
                    return
                except StoreError:
                    if not left:  # what was read may be gone, when two generations came meanwhile
                        raise

    def push(self) -> None:
        """Sends up what has changed here. The caller holds the lease.

        Raises:
            UserError: where another machine has gone on meanwhile.
            StoreError: where the store does not take it.
        """
        with self._lock, TemporaryDirectory(dir=self.folder / OWN) as scratch:
            newest = self._newest()
            state = self._state(newest)
            now = look(self.folder, state, Path(scratch))
            if now.files == state.base.files:
                return
            if newest.name != state.base.name:
                raise UserError(
                    f"storage = {self.bucket.address!r} has changed since {self.folder} was brought up to it; "
                    "allowed: the command again, which brings it up to it first"
                )
            files = self._upload(state, now)
            new = Generation(number=state.base.number + 1, token=uuid.uuid4().hex[:12], files=files)
            seen = {name: now.seen[name] for name in files}
            before = {one.digest for one in state.base.files.values()}
            # Should this process die in between, it is known for our own by its token.
            self._save(state.model_copy(update={"pending": State(base=new, before=before, seen=seen)}))
            self.bucket.put(f"generations/{new.name}", new.model_dump_json().encode())
            self._newest()  # refuses where another one of this number came up at the same time
            self._save(State(base=new, before=before, seen=seen))
            self._tidy(state, new)

    def is_driven_here(self) -> bool:
        """Whether a process drives a sweep in this folder, and so sends up what changes in it."""
        lease = read_lease(self.bucket)
        ours = lease.sweeps if lease is not None and lease.place == self.place else set()
        return any(is_locked(self.folder / name / LOCK) for name in ours)

    def has_changed(self) -> bool:
        """Whether there is anything to send up."""
        with self._lock, TemporaryDirectory(dir=self.folder / OWN) as scratch:
            state = self._state(None)
            return look(self.folder, state, Path(scratch)).files != state.base.files

    @contextmanager
    def driving(self, sweep: str) -> Iterator[None]:
        """Holds the lease for `sweep` while the block runs.

        Raises:
            UserError: when another machine holds it.
        """
        self.renew(sweep)
        try:
            yield
        finally:
            with self._lock, suppress(StoreError):  # it ends by itself
                leave_lease(self.bucket, self.place, sweep)

    def renew(self, sweep: str) -> None:
        """Takes the lease for `sweep`, or holds it for longer.

        Raises:
            UserError: when another machine has it.
        """
        with self._lock:
            take_lease(self.bucket, self.place, f"process {os.getpid()} on {socket.gethostname()}", sweep)

    def _newest(self) -> Generation:
        names = sorted(name for name in self.bucket.sizes("generations") if name.endswith(".json"))
        if not names:
            return Generation()
        if len(names) > 1 and names[-1].partition("-")[0] == names[-2].partition("-")[0]:
            raise UserError(
                f"storage = {self.bucket.address!r}: two machines wrote to it at once ({names[-2]}, {names[-1]}); "
                "allowed: one of the two, when the other one is deleted"
            )
        try:
            found = Generation.model_validate_json(self.bucket.get(f"generations/{names[-1]}"))
        except ValidationError:
            raise StoreError(
                f"storage = {self.bucket.address!r}: generations/{names[-1]} is broken; allowed: what was written there"
            ) from None
        for name in found.files:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or name.startswith(OWN):
                raise StoreError(f"storage = {self.bucket.address!r} names a file outside of the folder: {name[:80]!r}")
        return found

    def _pull(self, new: Generation) -> None:
        state = self._state(new)
        base = state.base
        if new.name == base.name:
            return
        if new.number <= base.number:
            raise UserError(
                f"storage = {self.bucket.address!r} is not, or is older than, what {self.folder} was brought up to; "
                f"allowed: the store that it was, or without that folder"
            )
        with TemporaryDirectory(dir=self.folder / OWN) as scratch:
            now = look(self.folder, state, Path(scratch))
        wanted: list[str] = []
        both: list[str] = []
        for name in sorted({*new.files, *base.files, *state.coming}):
            mine, old, theirs = now.files.get(name), base.files.get(name), new.files.get(name)
            came = (mine.digest if mine is not None else "") in state.coming.get(name, ())
            if theirs != mine and (mine == old or came):
                wanted.append(name)
            elif theirs not in (mine, old):  # else it changed here alone
                both.append(name)
        if both:
            more = f" and {len(both) - 1} more" if both[1:] else ""
            raise UserError(
                f"storage = {self.bucket.address!r}: {both[0]}{more} changed there, and in {self.folder}, whence it "
                "never went up; allowed: without that folder, when what only it has is saved"
            )
        for name in wanted:
            state.coming.setdefault(name, set()).add(new.files[name].digest if name in new.files else "")
        self._save(state)
        self._download(new, wanted)
        here = {name: (*stat_of(self.folder / name), new.files[name].digest) for name in wanted if name in new.files}
        self._save(State(base=new, seen={**now.seen, **here}))

    def _download(self, new: Generation, names: list[str]) -> None:
        size = sum(new.files[name].size for name in names if name in new.files)
        if size > 10e6:
            self.say(f"bringing down {size / 1e6:,.0f} MB of {self.bucket.address} to {self.folder}")
        for name in names:
            path = self.folder / name
            if name not in new.files:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial:
                if self.bucket.get_file(blob(new.files[name].digest), partial) != new.files[name].digest:
                    raise StoreError(f"storage = {self.bucket.address!r}: what it has of {name} is broken")

    def _upload(self, state: State, now: Look) -> dict[str, Kept]:
        """Sends up contents that the store lacks; returns the files whose content it has then."""
        there = {one.digest for one in state.base.files.values()}
        kept: dict[str, Kept] = {}
        for name, one in now.files.items():
            lacks = one.digest not in there and self.bucket.size(blob(one.digest)) != one.size
            if not lacks or self._put(one.digest, now.sources[name]):
                there.add(one.digest)
                kept[name] = one
            elif name in state.base.files:
                kept[name] = state.base.files[name]  # as it was, until the next time
        return kept

    def _put(self, content: str, path: Path) -> bool:
        """Sends up a file; False where it is not, or no longer, of this content."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return False
        with file:
            found = self.bucket.put_file(blob(content), file)
        if found != content:
            self.bucket.delete(blob(content))
        return found == content

    def _tidy(self, state: State, new: Generation) -> None:
        """Deletes what only generations before the last two had."""
        last = {one.digest for one in (*state.base.files.values(), *new.files.values())}
        for content in state.before - last:
            self.bucket.delete(blob(content))
        for name in self.bucket.sizes("generations"):
            if name.endswith(".json") and name < f"{state.base.number:010d}":
                self.bucket.delete(f"generations/{name}")

    def _state(self, newest: Generation | None) -> State:
        found = read_json_if_any(self.folder / OWN / "state.json", State) or State()
        if found.pending is not None and newest is not None and found.pending.base.name == newest.name:
            return found.pending
        return found

    def _save(self, state: State) -> None:
        with atomic_write(self.folder / OWN / "state.json") as partial:
            partial.write_text(state.model_dump_json())


def _identity(path: Path) -> str:
    """Tells a working folder from all others."""
    with suppress(FileExistsError), path.open("x") as file:
        file.write(uuid.uuid4().hex)
    return path.read_text()
