"""The indexes that were derived from journals and notes: what they have of erased content is purged from their files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from gateway.conversations.search.conversation_search import ConversationSearch
from gateway.support.home import Home
from plugins.memory.memory import Memory
from plugins.memory.sources.transcripts import document_of


class OpenIndexes:
    """The indexes of a running gateway. `memories` opens and returns those of all agents."""

    def __init__(self, memories: Callable[[], Awaitable[Sequence[Memory]]], search: ConversationSearch) -> None:
        self._memories = memories
        self._search = search
        self._erase = True

    async def purge(self, sessions: Sequence[str], notes: Sequence[str]) -> None:
        """Purge the indexes, which then read the sessions and notes again. Raises IndexUnusable, SearchUnavailable."""
        documents = [*(document_of(session) for session in sessions), *notes]
        for memory in await self._memories():
            await memory.purge(documents)
            self._erase = self._erase and memory.erases
        await self._search.remove(sessions)

    @property
    def remains(self) -> tuple[str, ...]:
        """What the indexes may keep, as sentences."""
        return () if self._erase else ("The backend of the memory decides when erased texts leave its files.",)


class ClosedIndexes:
    """The index files of a home without a gateway: they are removed, and built again when they are needed."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def purge(self, sessions: Sequence[str], notes: Sequence[str]) -> None:
        """Remove the files. Raises OSError."""
        await asyncio.to_thread(self._remove)

    @property
    def remains(self) -> tuple[str, ...]:
        """Nothing remains."""
        return ()

    def _remove(self) -> None:
        for path in self._files():
            path.unlink()

    def _files(self) -> Iterator[Path]:
        root = self._home.root
        for index in (self._home.memory, self._home.messages):
            yield from (path for path in root.glob(f"{index.stem}.*") if path.is_file())
