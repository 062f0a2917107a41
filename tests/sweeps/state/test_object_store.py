"""Sweeps kept in an object store: what goes up comes down elsewhere, whole, and nothing newer is lost."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from edp.spec import UserError
from sweeps.state import storage
from sweeps.state.bucket import Bucket, StoreError
from sweeps.state.generations import State
from sweeps.state.lease import Lease, read_lease
from sweeps.state.lock import driver_lock, is_held
from sweeps.state.mirror import Mirror
from sweeps.state.storage import close_storages
from tests.support.machines import Machine, address, contents, machine, s3, settles_at_once, write

__all__ = ["address", "machine", "s3", "settles_at_once"]


@pytest.mark.slow
def test_what_one_machine_wrote_another_one_has(machine: Machine) -> None:
    here = machine("a")
    write(here, "first/trials/0/model.pt", "weights" * 1_000_000)
    write(here, "first/sweep.json", "{}")
    for left_out in ("first/lock", "first/ray/x/big", "logs/first.log", "first/.sweep.json.1.partial"):
        write(here, left_out, "x")
    close_storages()
    there = machine("b")
    assert here != there
    assert set(contents(there)) == {"first/trials/0/model.pt", "first/sweep.json"}
    write(there, "first/sweep.json", '{"more": 1}')
    (there / "first/trials/0/model.pt").unlink()
    close_storages()
    assert machine("a") == here
    assert (here / "first/sweep.json").read_text() == '{"more": 1}'
    assert not (here / "first/trials/0/model.pt").exists()
    assert (here / "first/ray/x/big").exists(), "what is not kept is not touched"


def test_of_a_database_the_last_commit_goes_up(machine: Machine) -> None:
    here = machine("a")
    with closing(sqlite3.connect(here / "study.db")) as database:
        database.execute("CREATE TABLE t (n INTEGER)")
        database.execute("INSERT INTO t VALUES (1)")
        database.commit()
        database.execute("INSERT INTO t VALUES (2)")  # and no more comes of it
        close_storages()
        there = machine("b")
    with closing(sqlite3.connect(there / "study.db")) as copy:
        assert copy.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_nothing_that_changed_nothing_goes_up(machine: Machine, address: str) -> None:
    here = machine("a")
    write(here, "one/sweep.json", "{}")
    close_storages()
    before = Bucket(address).sizes("generations")
    machine("a")
    close_storages()
    assert Bucket(address).sizes("generations") == before
    assert len(before) == 1


def test_half_an_upload_is_never_seen(machine: Machine, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine("a")
    write(here, "one/a", "old")
    write(here, "one/b", "old")
    close_storages()
    machine("a")
    write(here, "one/a", "new")
    write(here, "one/b", "newer")
    put, left = Bucket.put_file, iter([True, False])

    def dies(self: Bucket, name: str, file: BinaryIO) -> str:
        if next(left):
            return put(self, name, file)
        raise StoreError("the machine has gone")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put_file", dies)
        with pytest.raises(StoreError, match="gone"):
            close_storages()
    there = machine("b")
    assert contents(there) == {"one/a": b"old", "one/b": b"old"}
    machine("a")
    assert contents(here) == {"one/a": b"new", "one/b": b"newer"}, "what is newer here stays"
    close_storages()
    machine("b")
    assert contents(there) == {"one/a": b"new", "one/b": b"newer"}


def test_a_machine_that_died_between_its_last_two_writes_knows_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine("a")
    write(here, "one/a", "old")
    save, left = Mirror._save, iter([True, False])

    def dies(self: Mirror, state: State) -> None:
        if not next(left):
            raise KeyboardInterrupt
        save(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "_save", dies)
        with pytest.raises(KeyboardInterrupt):
            close_storages()
    write(here, "one/a", "new")
    machine("a")
    close_storages()
    assert contents(machine("b")) == {"one/a": b"new"}


def test_changes_to_different_files_both_stay_and_to_one_are_refused(machine: Machine) -> None:
    here = machine("a")
    write(here, "one/a", "1")
    write(here, "one/b", "1")
    close_storages()
    there = machine("b")
    write(there, "one/b", "of b")
    close_storages()
    write(here, "one/a", "of a")
    machine("a")
    assert contents(here) == {"one/a": b"of a", "one/b": b"of b"}
    close_storages()
    write(there, "one/a", "of b too")
    with pytest.raises(UserError, match=r"one/a changed there, and in .*; allowed: without that folder"):
        machine("b")
    assert (there / "one/a").read_text() == "of b too", "nothing was overwritten"


def test_a_store_that_went_back_does_not_take_the_folder_with_it(machine: Machine, address: str) -> None:
    here = machine("a")
    write(here, "one/a", "1")
    close_storages()
    names = list(Bucket(address).sizes("generations"))
    for name in names:
        Bucket(address).delete(f"generations/{name}")
    with pytest.raises(UserError, match="is not, or is older than"):
        machine("a")
    assert contents(here) == {"one/a": b"1"}


def test_what_the_store_has_lost_or_broken_is_not_taken(machine: Machine, address: str) -> None:
    here = machine("a")
    write(here, "one/a", "1")
    close_storages()
    bucket = Bucket(address)
    (name,) = bucket.sizes("generations")
    content = json.loads(bucket.get(f"generations/{name}"))["files"]["one/a"]["digest"]
    bucket.put(f"blobs/{content[:2]}/{content}", b"2")
    with pytest.raises(StoreError, match="what it has of one/a is broken"):
        machine("b")
    bucket.put(f"generations/{name}", bucket.get(f"generations/{name}").replace(b"one/a", b"../../a"))
    with pytest.raises(StoreError, match="outside of the folder"):
        machine("c")


def test_what_nobody_names_any_more_is_deleted(machine: Machine, address: str) -> None:
    for text in ("1", "2", "3", "4"):
        here = machine("a")
        write(here, "one/a", text)
        close_storages()
    bucket = Bucket(address)
    assert len(bucket.sizes("generations")) == 2
    from pyarrow import fs

    found = bucket._fs.get_file_info(fs.FileSelector(f"{bucket._root}/blobs", recursive=True))
    assert len([one for one in found if one.type == fs.FileType.File]) == 2


def test_one_machine_at_a_time_drives(machine: Machine, address: str) -> None:
    here = machine("a")
    opened = dict(storage._open)
    with driver_lock(here / "first", "first"):
        write(here, "first/sweep.json", "{}")
        there = machine("b")
        assert is_held(there / "first"), "it runs, and is not interrupted"
        assert not is_held(there / "second")
        with pytest.raises(UserError, match=r"sweep\(s\) first of it run elsewhere .*another one after \d\d:\d\d:\d\d"):
            driver_lock(there / "second", "second").__enter__()
        assert contents(there).get("first/sweep.json") is None, "it has not gone up yet"
        storage._open.clear()
        storage._open.update(opened)
    assert read_lease(Bucket(address)) is None
    machine("b")
    with driver_lock(there / "first", "first"):
        assert (there / "first/sweep.json").read_text() == "{}"


def test_a_lease_ends_by_itself(machine: Machine, address: str) -> None:
    here = machine("a")
    (mirror,) = storage._open.values()
    mirror.renew("first")
    machine("b")
    (other,) = storage._open.values()
    with pytest.raises(UserError, match="run elsewhere"):
        other.renew("first")
    bucket = Bucket(address)
    found = read_lease(bucket)
    assert found is not None
    bucket.put("lease.json", Lease(place=found.place, holder="x", until={"first": 1.0}).model_dump_json().encode())
    assert read_lease(bucket) is None
    other.renew("first")
    taken = read_lease(bucket)
    assert taken is not None
    assert taken.place != found.place
    machine("a")
    with pytest.raises(UserError, match="run elsewhere"), driver_lock(here / "first", "first"):
        pass


def test_it_goes_up_while_a_sweep_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_EVERY_S", 0.05)
    here = machine("a")
    went = threading.Event()
    push = Mirror.push

    def told(self: Mirror) -> None:
        push(self)
        if (here / "first/epoch").exists():
            went.set()

    monkeypatch.setattr(Mirror, "push", told)
    opened = dict(storage._open)
    with driver_lock(here / "first", "first"):
        write(here, "first/epoch", "1")
        assert went.wait(30)
        assert (machine("b") / "first/epoch").read_text() == "1"
        storage._open.clear()
        storage._open.update(opened)


@pytest.mark.slow
def test_a_pull_that_broke_off_is_no_change_of_ones_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    get, came = Bucket.get_file, []

    def dies(self: Bucket, name: str, path: Path) -> str:
        if len(came) % 2:  # the second one of each pull
            came.append(name)
            raise KeyboardInterrupt
        came.append(name)
        return get(self, name, path)

    here, there = machine("a"), machine("b")
    for text in ("1", "2", "3"):
        machine("a")
        for name in ("one/a", "one/b", f"one/{text}"):
            write(here, name, text)
        (here / f"one/{int(text) - 1}").unlink(missing_ok=True)
        close_storages()
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "get_file", dies)
            with pytest.raises(KeyboardInterrupt):
                machine("b")
    assert len(came) == 6
    machine("b")
    assert contents(there) == contents(here) == {"one/a": b"3", "one/b": b"3", "one/3": b"3"}


def test_a_folder_of_this_machine_may_have_any_letters_in_its_path(tmp_path: Path) -> None:
    for spelled in ("año störe", "a%C3%B1o%20st%C3%B6re"):
        store = Bucket(f"file://{tmp_path}/{spelled}")
        store.put("in/a", b"one")
        assert store.sizes("in") == {"a": 3}
    assert [place.name for place in tmp_path.iterdir()] == ["año störe"]
