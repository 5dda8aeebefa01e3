"""The time from an append to its commit: journals, and the PostgreSQL store if DATABASE_URL names an empty database."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import new_home
from benchmarks.setting import Setting
from gateway.support.home import Home
from gateway.wiring.open_stores import open_log_stores
from plugins.support.secrets import Secret
from sessions.events.errors import StorageFailed
from sessions.store.protocols import Log, Store

LINE = b'{"seq":1,"text":"%s","sum":"0123456789abcdef"}\n' % (b"x" * 435)
"""A line of 480 bytes. Stores do not interpret it."""


def run(setting: Setting) -> list[Figure]:
    """Append to one session, then to `setting.sessions` at a time; the stores take turns within one run."""
    with new_home(setting.folder) as folder:
        homes = {"files": Home(folder)}
        if url := os.environ.get("DATABASE_URL"):
            homes["PostgreSQL"] = Home(folder, database=Secret(url))
        homes["files"].make()
        return asyncio.run(_measure(homes, setting))


async def _measure(homes: dict[str, Home], setting: Setting) -> list[Figure]:
    figures = list[Figure]()
    async with AsyncExitStack() as stack:
        stores = {name: (await stack.enter_async_context(open_log_stores(home))).sessions for name, home in homes.items()}
        for sessions in (1, setting.sessions):
            samples = {name: list[float]() for name in stores}
            for run_number in range(setting.runs):
                for name, store in stores.items():
                    samples[name] += await _append(store, f"{time.time_ns()}-{run_number}", sessions, setting.each)
            files = figure("appending", f"commit in files, {sessions} at a time", "ms", samples.pop("files"))
            figures.append(files)
            figures += [
                figure(
                    "appending",
                    f"commit in {name}, {sessions} at a time",
                    "ms",
                    found,
                    against="files",
                    reference=files.median,
                )
                for name, found in samples.items()
            ]
    return figures


async def _append(store: Store, prefix: str, sessions: int, each: int) -> list[float]:
    """Append `each` lines to each of some new logs, one after the other, and return the times in ms."""
    logs = [await store.create(f"{prefix}-{number}") for number in range(sessions)]
    found = await asyncio.gather(*(_append_to(log, each) for log in logs))
    for number, log in enumerate(logs):
        await log.close()
        await store.remove(f"{prefix}-{number}")
    return [sample for samples in found for sample in samples]


async def _append_to(log: Log, count: int) -> list[float]:
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def failed(failure: StorageFailed) -> None:
        waiting.set_exception(failure)

    log.on_commit(lambda _: waiting.set_result(None), failed)
    samples = []
    for _ in range(count):
        began = time.perf_counter()
        log.append(LINE, urgent=True)
        await waiting
        samples.append((time.perf_counter() - began) * 1000)
        waiting = asyncio.get_running_loop().create_future()
    return samples
