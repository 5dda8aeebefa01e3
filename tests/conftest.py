"""What holds for all tests."""

from __future__ import annotations

import gc
import logging
import os
import resource
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from plugins.support import secrets
from tests.stalls import Stalls
from tests.waiting import DEADLINE

LONGEST = (
    "mcp/test_conformance.py",
    "cluster/test_bites.py",
    "cluster/test_history.py",
    "channels/test_email_story.py",
    "channels/test_matrix_story.py",
    "attacks/test_texts.py",
    "attacks/test_patterns.py",
    "channels/test_story.py",
    "console/test_settings_page.py",
    "channels/test_irc_channel.py",
    "service/test_service.py",
    "channels/test_every_kind.py",
    "test_benchmarks.py",
    "conformance/test_postgres_store.py",
    "channels/test_discord_clients.py",
    "torture/test_torture.py",
    "attacks/test_channel_senders.py",
    "faults/test_schedule_clock.py",
    "faults/test_approval_kill.py",
    "console/test_chat.py",
    "mcp/test_stdio_servers.py",
)
"""Files that take half a minute or more, the longest first. Each is run by one worker, and the others would wait for the
last of them, so they begin in the first half of the run. They mostly wait, so that other files run between them."""

# A machine that is busy with other things is no fault of what is tested.
settings.register_profile("exuvia", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("exuvia")


def pytest_xdist_auto_num_workers() -> int:
    """Return four workers more than there are cores, since many tests wait for processes and disks."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 4


def pytest_configure(config: pytest.Config) -> None:
    """Time every callback of the event loop; the longest are printed at the end."""
    stalls = Stalls()
    config.pluginmanager.register(stalls, "stalls")
    stalls.start()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what collecting creates from garbage collection.

    Each worker holds 1.8 million objects of collected tests. Traversing them takes 0.8 s, and is done at the end of each
    file.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_finish() -> None:
    """Give what the kits for plugins check as much time as everything else, once they are imported with their assertions
    rewritten."""
    kits = [sys.modules.get(f"plugins.testing.{name}") for name in ("checks", "channel_checks")]
    for kit, limit in zip(kits, ("SECONDS", "PATIENCE"), strict=True):
        if kit is not None:
            setattr(kit, limit, DEADLINE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the longest files over the first half."""
    longest = {Path(__file__).parent / file: place for place, file in enumerate(LONGEST)}
    others = {
        path: place for place, path in enumerate(dict.fromkeys(item.path for item in items if item.path not in longest))
    }
    apart = len(others) / (2 * len(longest))
    items.sort(key=lambda item: longest[item.path] * apart if item.path in longest else others[item.path])


@pytest.fixture(autouse=True, scope="module")
def _what_is_left_open_fails_here() -> Iterator[None]:
    """Collect garbage after each file, so that what its tests left open is reported there and not in a later file."""
    yield
    gc.collect()


@pytest.fixture
def take_all_descriptors() -> Iterator[Callable[[], None]]:
    """Takes every descriptor that is left when it is called, until the test ends."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open("/", os.O_RDONLY))

    yield fill
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that make a file shorter, durable or known by a name, in their order. All of them are done."""
    made: list[str] = []

    def note(call: str, step: Callable[[Any], str] | str) -> None:
        whole = getattr(os, call)

        def noted(first: Any, *more: Any, **named: Any) -> Any:
            made.append(step if isinstance(step, str) else step(first))
            return whole(first, *more, **named)

        monkeypatch.setattr(os, call, noted)

    note("fsync", lambda descriptor: "sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync")
    note("fdatasync", "sync content")
    note("ftruncate", "cut")
    for call in ("rename", "replace", "link"):
        note(call, call)
    return made


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Forget the secrets that a test has registered."""
    before = secrets._lasting.copy(), secrets._renewed.copy(), secrets._whole, secrets._parts
    yield
    secrets._lasting, secrets._renewed, secrets._whole, secrets._parts = before


@pytest.fixture(autouse=True)
def _log_of_one_test() -> Iterator[None]:
    """Undo changes to logging by a test, or by a command that it runs in this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
