"""Tasks that a plugin leaves behind are cancelled and named; those of the house are nobody's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from plugins.support import task_leaks
from tests.waiting import VirtualTime


@pytest.fixture(autouse=True)
async def factory() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(task_leaks.task_factory)
    with VirtualTime():
        yield
    loop.set_task_factory(None)


async def forever() -> None:
    await asyncio.sleep(3600)


async def test_tasks_that_outlast_the_call_are_cancelled_and_named() -> None:
    told: list[str] = []

    with task_leaks.cancelling_leaks("leaky", told.append):
        tasks = [asyncio.create_task(forever()) for _ in range(5)]
    await asyncio.sleep(3 * task_leaks.GRACE)

    assert all(task.cancelled() for task in tasks)
    assert told == ["it left tasks running after its call, which were cancelled: " + "forever, " * 2 + "forever and 2 more"]


async def test_tasks_started_by_tasks_are_found() -> None:
    told: list[str] = []
    begun: list[asyncio.Task[None]] = []

    async def begins() -> None:
        begun.append(asyncio.create_task(forever()))

    with task_leaks.cancelling_leaks("leaky", told.append):
        await asyncio.create_task(begins())
    await asyncio.sleep(3 * task_leaks.GRACE)

    assert [task.cancelled() for task in begun] == [True]
    assert len(told) == 1


async def test_tasks_that_end_soon_after_the_call_are_no_leaks() -> None:
    told: list[str] = []

    with task_leaks.cancelling_leaks("quick", told.append):
        task = asyncio.create_task(asyncio.sleep(task_leaks.GRACE / 2))
    await asyncio.sleep(3 * task_leaks.GRACE)

    assert (told, task.cancelled()) == ([], False)


async def test_tasks_started_before_or_after_the_block_keep_running() -> None:
    told: list[str] = []
    before = asyncio.create_task(forever())

    with task_leaks.cancelling_leaks("leaky", told.append):
        pass
    after = asyncio.create_task(forever())
    await asyncio.sleep(3 * task_leaks.GRACE)

    assert (told, before.done(), after.done()) == ([], False, False)
    for task in (before, after):
        task.cancel()


async def test_a_task_that_the_project_starts_for_a_plugin_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(task_leaks, "_OWN_FOLDERS", (__file__,))

    with task_leaks.cancelling_leaks("caller", told.append):
        task = asyncio.create_task(forever())
    await asyncio.sleep(3 * task_leaks.GRACE)

    assert (told, task.done()) == ([], False)
    task.cancel()
