"""Jobs and answers between a driver and a worker group that comes and goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.tiny import spec
from trainables.records.job import Stop, TrialJob
from trainables.workers.job_queue import RETRIES, Death, JobQueue, Message

JOB = TrialJob(spec(), Path("corpus"), Path("output"))


async def messages(box: JobQueue, job: str, count: int) -> list[Message]:
    return [await asyncio.wait_for(box.next_message(job, place), 1) for place in range(count)]


async def answered(box: JobQueue, job: str, generation: int, epoch: int) -> Stop | None:
    """An epoch of rank 0's, whose answer comes at once."""
    await box.acknowledge(job, epoch, None)
    return await box.epoch(job, generation, epoch, {})


def test_a_job_that_its_group_died_over_is_handed_out_again_to_every_worker_of_the_next() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        for rank in (0, 1):
            assert await box.next_job(rank, 0) == ("a", JOB)
        await answered(box, "a", 0, 1)
        await box.died(Death("worker 1 has died", process=True))
        # What is left of the group that died is not listened to.
        assert await box.next_job(0, 0) is None
        await box.post("a", 0, ("failed", "late"))
        for rank in (0, 1):
            assert await box.next_job(rank, 1) == ("a", JOB)
        await box.post("a", 1, ("result", 7))
        kinds = [kind for kind, _ in await messages(box, "a", 5)]
        assert kinds == ["started", "epoch", "restarted", "started", "result"]

    asyncio.run(story())


def test_a_worker_that_is_stopped_is_spoken_of_and_so_is_its_return() -> None:
    async def story() -> None:
        box = JobQueue(patience_s=0.2)
        await box.submit("a", JOB)
        for rank in (0, 1):
            assert await box.next_job(rank, 0) == ("a", JOB)
            assert await box.beat(rank, 0, f"process {rank} on h")

        async def rank_0_lives() -> None:
            while await box.beat(0, 0, "process 0 on h"):
                await asyncio.sleep(0.01)

        alive = asyncio.create_task(rank_0_lives())
        kind, line = await asyncio.wait_for(box.next_message("a", 1), 60)
        assert kind == "notice"
        assert line.startswith("worker 1 (process 1 on h) has given no sign of life for 0 s: it may be stopped")
        again = (await asyncio.wait_for(box.next_message("a", 2), 60))[1]
        assert again.startswith("worker 1 (process 1 on h) has given no sign"), "and again, after twice the time"
        await box.beat(1, 0, "process 1 on h")
        assert (await messages(box, "a", 4))[-1] == ("notice", "worker 1 gives signs of life again")
        await box.died(Death("worker 1 has died", process=True))
        assert not await box.beat(1, 0, "process 1 on h"), "what is left of a group that died is not listened to"
        await asyncio.wait_for(alive, 60)

    asyncio.run(story())


def test_a_job_that_always_kills_its_group_fails_and_the_next_one_does_not() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("bad", JOB)
        await box.submit("good", JOB)
        for generation in range(RETRIES + 1):
            assert await box.next_job(0, generation) == ("bad", JOB)
            await box.died(Death("worker 0 has died", process=True))
        *_, (kind, reason) = await messages(box, "bad", 2 * RETRIES + 2)
        assert kind == "failed"
        assert reason.startswith("its workers died 4 times without an epoch in between")
        assert reason.endswith("worker 0 has died")
        assert await box.next_job(0, RETRIES + 1) == ("good", JOB)

    asyncio.run(story())


def test_a_job_whose_workers_are_killed_for_want_of_memory_is_not_to_blame() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        for generation in range(RETRIES + 1):
            assert await box.next_job(0, generation) == ("a", JOB)
            await box.died(Death("short of memory", process=True, memory=True))
        assert (await messages(box, "a", 2 * RETRIES + 2))[-1] == ("stopped", "short of memory")

    asyncio.run(story())


def test_a_queue_that_was_started_again_serves_the_next_group_and_refuses_the_last() -> None:
    async def story() -> None:
        box = JobQueue()
        assert await box.begin(1)
        assert await box.next_message("a", 5) == ("lost", None)
        await box.submit("a", JOB)
        again = JobQueue()
        assert await again.next_message("a", 5) == ("lost", None)
        await again.submit("a", JOB)
        assert await again.epoch("a", 1, 1, {}) == Stop("another group runs the job", measure=False)
        assert await again.next_job(0, 1) is None
        assert await again.begin(2)
        assert await again.next_job(0, 2) == ("a", JOB)

    asyncio.run(story())


def test_a_job_that_makes_progress_may_lose_its_group_any_number_of_times() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        for generation in range(5 * RETRIES):
            assert await box.next_job(0, generation) == ("a", JOB)
            await answered(box, "a", generation, generation + 1)
            await box.died(Death("the node went away", process=True))

    asyncio.run(story())


def test_what_a_worker_raised_by_itself_is_not_tried_again() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        await box.next_job(0, 0)
        await box.note(0, "worker 1: UserError: no corpus")
        await box.died(Death("worker 0: connection lost", process=False, again=False))
        assert await messages(box, "a", 2) == [("started", None), ("failed", "worker 1: UserError: no corpus")]

    asyncio.run(story())


def test_a_group_that_never_serves_anything_is_given_up() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        for generation in range(1, RETRIES + 2):
            assert await box.begin(generation)
            await box.died(Death("no memory to start", process=True))
        assert not await box.begin(RETRIES + 2)
        assert await messages(box, "a", 1) == [("stopped", "no memory to start")]
        await box.submit("b", JOB)
        assert await messages(box, "b", 1) == [("stopped", "no memory to start")], "no job is to blame"

    asyncio.run(story())


def test_stopping_lets_the_running_epoch_end_and_starts_no_other_job() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        await box.next_job(0, 0)
        await box.stop("Ctrl-C")
        assert await box.epoch("a", 0, 1, {}) == Stop("Ctrl-C", measure=False)
        await box.post("a", 0, ("stopped", "Ctrl-C"))
        await box.submit("b", JOB)
        assert await messages(box, "b", 1) == [("stopped", "Ctrl-C")]

    asyncio.run(story())


def test_a_job_whose_group_cannot_end_its_epoch_stops_where_it_is() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        await box.next_job(0, 0)
        await box.stop("the disk is full", at_once=True)
        assert (await messages(box, "a", 2))[-1] == ("stopped", "the disk is full")
        await box.died(Death("worker 0: OSError", process=False))
        assert not await box.begin(1), "no group is needed any more"

    asyncio.run(story())


def test_whoever_asks_again_hears_everything_again_and_starts_nothing() -> None:
    async def story() -> None:
        box = JobQueue()
        await box.submit("a", JOB)
        await box.next_job(0, 0)
        await answered(box, "a", 0, 1)
        await box.submit("a", JOB)
        await box.post("a", 0, ("result", 7))
        assert [kind for kind, _ in await messages(box, "a", 3)] == ["started", "epoch", "result"]
        await box.close("the end")
        assert await box.next_job(0, 0) is None

    asyncio.run(story())
