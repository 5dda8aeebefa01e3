"""Conversations as they were last encoded: each request repeats the one before, so only what is new is encoded."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.events.messages import Message
from sessions.state.context import starts_with

REMEMBERED = 32 * 1024 * 1024
"""Bytes of encoded conversations that a provider keeps."""


class EncodingCache:
    """Of each session, messages and their bytes, within a limit in bytes; what was used longest ago is forgotten."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._known: dict[str, tuple[Sequence[Message], bytearray]] = {}
        self._limit = limit
        self.size = 0
        """Bytes that are kept now."""

    def take(self, session: str, messages: Sequence[Message]) -> tuple[int, bytearray]:
        """How many of these messages, from the first on, are known, and their bytes, which are the caller's from here
        on: they grow in place, since a copy of a long conversation costs page faults."""
        before, encoded = self._known.pop(session, ((), bytearray()))
        self.size -= len(encoded)
        return (len(before), encoded) if starts_with(messages, before) else (0, bytearray())

    def keep(self, session: str, messages: Sequence[Message], encoded: bytearray) -> None:
        """Remember these messages as these bytes."""
        self._known[session] = messages, encoded
        self.size += len(encoded)
        while self.size > self._limit and self._known:
            _, forgotten = self._known.pop(next(iter(self._known)))
            self.size -= len(forgotten)
