"""Threads before a disk: bounded, and one that hangs holds nobody else."""

import asyncio
import threading

import pytest

from torchgate.gateway.files import disk as disks
from torchgate.gateway.files.disk import Disk, Disks, Job


class Work(Job):
    def __init__(self, loop, run=lambda: None, finished=lambda: None):
        self.run = run
        self.ends = loop.create_future()
        self._finished = finished

    def finished(self):
        self.ends.set_result("finished")
        self._finished()

    def failed(self, error):
        self.ends.set_result(error)


def run(scenario):
    """Run a scenario with a disk; return what was reported."""
    reports = []

    async def main():
        loop = asyncio.get_running_loop()
        disk = Disk(loop, reports.append, "test-disk")
        try:
            async with asyncio.timeout(20):
                await scenario(loop, disk)
        finally:
            disk.close()

    asyncio.run(main())
    return reports


def test_results_come_back_on_the_loop():
    """The work is done elsewhere, what follows here, and the count returns to zero."""
    threads = []

    async def scenario(loop, disk):
        jobs = [
            Work(
                loop,
                lambda: threads.append(threading.current_thread().name),
                lambda: threads.append(threading.current_thread().name),
            )
            for _ in range(50)
        ]
        assert all(disk.submit(job) for job in jobs)
        assert disk.waiting == 50
        for job in jobs:
            assert await job.ends == "finished"
        assert disk.waiting == 0

    assert run(scenario) == []
    assert threads.count("test-disk") == threads.count("MainThread") == 50


@pytest.mark.pain("N01")
def test_a_disk_that_hangs(monkeypatch):
    """The queue before it is bounded, what has begun goes on beyond that, another disk is not touched."""
    monkeypatch.setattr(disks, "MAX_WAITING", 10)
    go = threading.Event()

    async def scenario(loop, disk):
        jobs = [Work(loop, lambda: go.wait(20)) for _ in range(10)]
        assert all(disk.submit(job) for job in jobs)
        assert not disk.submit(Work(loop))
        further = Work(loop)
        disk.go_on(further)
        other = Disk(loop, lambda _text: None, "other")
        job = Work(loop)
        assert other.submit(job)
        assert await job.ends == "finished"
        other.close()
        assert not further.ends.done()
        go.set()
        for job in (*jobs, further):
            assert await job.ends == "finished"
        assert disk.submit(Work(loop))

    assert run(scenario) == []


def test_a_defect_is_told_and_holds_nothing_up():
    """In the work and in what follows: both are reported, and the next jobs are done."""

    async def scenario(loop, disk):
        broken = Work(loop, lambda: 1 / 0)
        disk.submit(broken)
        assert isinstance(await broken.ends, ZeroDivisionError)
        late = Work(loop, finished=lambda: {}[0])
        disk.submit(late)
        fine = Work(loop)
        disk.submit(fine)
        assert await fine.ends == "finished"
        assert disk.waiting == 0

    reports = run(scenario)
    assert "ZeroDivisionError" in reports[0]
    assert "KeyError" in reports[1]


def test_a_closed_disk_delivers_nothing():
    """Its threads end, and what they still do is dropped."""
    go = threading.Event()

    async def scenario(loop, disk):
        job = Work(loop, lambda: go.wait(20))
        disk.submit(job)
        disk.close()
        assert not disk.submit(Work(loop))
        go.set()
        await asyncio.sleep(0.05)
        assert not job.ends.done()

    assert run(scenario) == []


def test_roots_share_threads_when_there_are_many():
    """A thousand static routes don't make a thousand sets of threads."""

    async def main():
        made = Disks(asyncio.get_running_loop(), lambda _text: None)
        found = {id(made.of(f"/srv/{i}")) for i in range(1000)}
        assert len(found) == disks.MAX_DISKS
        assert made.of("/srv/5") is made.of("/srv/5")
        assert made.of("/srv/999") is made.of("/srv/999")

    asyncio.run(main())
