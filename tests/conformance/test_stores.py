"""The file store keeps what a store promises."""

from __future__ import annotations

import errno
import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from gateway.support.home import Home
from gateway.wiring.open_stores import open_catalog, open_log_stores
from sessions.events.errors import StorageFailed
from sessions.files.append_file import AppendFile
from sessions.store.catalog import Catalog, Claims, SoleClaims
from sessions.store.protocols import Store
from tests.conformance.stores import StoreMachine


@dataclass
class OpenFiles:
    """The file store of a home."""

    store: Store
    catalog: Catalog
    claims: Claims


class Files:
    """The file store, and its files as others see them. A crash continues in a copy of the home."""

    leaves_torn_lines = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._home = Home(folder / "0")
        self._home.sessions.mkdir(parents=True)
        self._stack = AsyncExitStack()
        self._patch = pytest.MonkeyPatch()

    async def start(self) -> OpenFiles:
        async with AsyncExitStack() as stack:
            stores = await stack.enter_async_context(open_log_stores(self._home))
            catalog = await stack.enter_async_context(open_catalog(self._home, stores.sessions))
            self._stack = stack.pop_all()
        return OpenFiles(stores.sessions, catalog, SoleClaims(catalog))

    async def stop(self) -> None:
        self._patch.undo()
        await self._stack.aclose()

    async def crash(self) -> None:
        self._number += 1
        copy = Home(self._folder / str(self._number))
        shutil.copytree(self._home.root, copy.root)
        await self.stop()
        self._home = copy

    def fail_next_commit(self, *, stored: bool) -> None:
        plain_sync, plain_write = AppendFile.sync, AppendFile._write

        def sync(file: AppendFile) -> None:
            self._patch.undo()
            plain_sync(file)
            raise StorageFailed("The answer was lost.", fatal=True)

        def write(file: AppendFile, chunk: bytes) -> None:
            self._patch.undo()
            plain_write(file, chunk[: len(chunk) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        if stored:
            self._patch.setattr(AppendFile, "sync", sync)
        else:
            self._patch.setattr(AppendFile, "_write", write)

    def content(self, session: str) -> bytes:
        return self._path(session).read_bytes()

    def replace(self, session: str, content: bytes | None) -> None:
        path = self._path(session)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)

    def _path(self, session: str) -> Path:
        return self._home.sessions / f"{session}.jsonl"


class FileMachine(StoreMachine):
    under_test = Files


TestFiles = FileMachine.TestCase
TestFiles.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
