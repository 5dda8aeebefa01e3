"""A log that is held while a thread works on it, and what happens when no thread can be started."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.postgres.advisory_lock import AdvisoryLock
from sessions.postgres.connections import Database
from sessions.store.queued_log import OpenLogs
from tests.waiting import deadline


@asynccontextmanager
async def one_busy_thread(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Let the pool of the event loop have one thread, which is busy in the block; no other can be started there."""
    loop, free = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(2))
    busy = loop.run_in_executor(None, free.wait)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            yield
    finally:
        free.set()
        async with deadline():
            await busy
            await asyncio.to_thread(lambda: None)  # after whatever the pool still has


async def test_a_log_for_which_no_thread_can_be_started_is_not_held_and_nothing_is_done_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = list[str]()
    committer = SimpleNamespace(failure=asyncio.get_running_loop().create_future())
    logs = OpenLogs(cast(Any, committer))
    async with one_busy_thread(monkeypatch):
        with pytest.raises(RuntimeError, match="can't start"):
            await logs.hold("s", lambda: done.append("removed"))
        assert not logs.is_held("s")
    assert done == []
    await logs.hold("s", lambda: done.append("removed"))
    assert done == ["removed"]


async def test_a_lock_for_which_no_thread_can_be_started_is_not_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[str]()
    monkeypatch.setattr(AdvisoryLock, "_begin", lambda _, name: begun.append(name))
    async with one_busy_thread(monkeypatch):
        with pytest.raises(RuntimeError, match="can't start"):
            await AdvisoryLock.acquire(cast(Database, None), "facts")
    assert begun == []
