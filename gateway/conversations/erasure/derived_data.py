"""The indexes that were derived from journals and notes: what they have of erased content is purged from their files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from pathlib import Path

from gateway.conversations.search.conversation_search import ConversationSearch
from gateway.support.home import Home
from plugins.memory.memory import Memory
from plugins.memory.sources.transcripts import document_of


class OpenIndexes:
    """The indexes of a running gateway.

    Args:
        home: The home.
        memories: Opens and returns those of all agents that are configured, by name.
        search: The search.
    """

    def __init__(
        self, home: Home, memories: Callable[[], Awaitable[Mapping[str, Memory]]], search: ConversationSearch
    ) -> None:
        self._home = home
        self._memories = memories
        self._search = search
        self._erase = True

    async def purge(self, sessions: Sequence[str], notes: Sequence[str]) -> None:
        """Purge the indexes, which then read the sessions and notes again. Raises IndexUnusable, SearchUnavailable."""
        documents = [*(document_of(session) for session in sessions), *notes]
        memories = await self._memories()
        for memory in memories.values():
            await memory.purge(documents)
            self._erase = self._erase and memory.erases
        await asyncio.to_thread(_remove_indexes, self._home, memories)
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
        root = self._home.root
        for index in (self._home.memory, self._home.messages):
            _remove_files(root, index.stem)
        _remove_indexes(self._home, ())


def _remove_indexes(home: Home, kept: Container[str]) -> None:
    """Remove the indexes of agents, also of those that are not configured any more; except for the names in `kept`."""
    for folder in home.agents.glob("*"):
        if folder.name not in kept:
            _remove_files(folder, home.memory.stem)


def _remove_files(folder: Path, stem: str) -> None:
    for path in folder.glob(f"{stem}.*"):
        if path.is_file():
            path.unlink()
