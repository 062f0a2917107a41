"""A job gets a group that is free, its own one again after a death, and waits while all are busy."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from trainables.workers.client import Leases

TWO = {0: ("queue 0", True), 1: ("queue 1", True)}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_a_job_waits_until_a_group_is_free() -> None:
    async def story() -> None:
        leases = Leases()
        await leases.sync(TWO)
        assert {await leases.lease("a"), await leases.lease("b")} == {"queue 0", "queue 1"}
        third = asyncio.create_task(leases.lease("c"))
        await asyncio.sleep(0.01)
        demand = await leases.sync(TWO)
        assert (demand.waiting, demand.free) == (1, ())
        assert await leases.lease("a") == "queue 0", "a job whose sender died asks again"
        await leases.release("b")
        assert await third == "queue 1"
        assert (await leases.sync(TWO)).served == {0: 1, 1: 2}
        await leases.release("a")
        await leases.release("c")
        assert (await leases.sync(TWO)).free == (0, 1)

    run(story())


def test_a_group_that_does_not_run_yet_gets_a_job_only_if_no_other_runs() -> None:
    async def story() -> None:
        leases = Leases()
        first = asyncio.create_task(leases.lease("a"))
        await asyncio.sleep(0.01)
        await leases.sync({0: ("queue 0", False)})
        assert await first == "queue 0", "whose end it must hear of if that group never runs"
        second = asyncio.create_task(leases.lease("b"))
        demand = await leases.sync({0: ("queue 0", True), 1: ("queue 1", False)})
        await asyncio.sleep(0.01)
        assert not second.done()
        assert demand.free == (1,)
        await leases.release("a")
        assert await second == "queue 0"

    run(story())


def test_a_group_with_a_job_is_not_retired() -> None:
    async def story() -> None:
        leases = Leases()
        await leases.sync(TWO)
        await leases.lease("a")
        assert not await leases.retire(0)
        assert await leases.retire(1)
        assert (await leases.sync({0: TWO[0]})).free == ()
        await leases.release("a")
        assert await leases.retire(0)

    run(story())


def test_leases_that_were_started_again_learn_their_groups() -> None:
    """The busy group counts as free: a second job waits in the group's own queue."""

    async def story() -> None:
        leases = Leases()
        waits = asyncio.create_task(leases.lease("b"))
        await asyncio.sleep(0.01)
        await leases.sync(TWO)
        assert await waits == "queue 0"
        await leases.release("unknown")

    run(story())
