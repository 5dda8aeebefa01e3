"""Encoding requests: a cache of encoded conversations, and names of tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from sessions.events.messages import Message
from sessions.state.context import starts_with

CACHE_BYTES = 32 * 1024 * 1024
"""The size of a provider's cache in bytes."""


class EncodingCache:
    """The messages of each session with their encoding, up to `limit` bytes; evicts the least recently used. Each request
    repeats the one before, so only new messages are encoded."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._entries: dict[str, tuple[Sequence[Message], bytearray]] = {}
        self._limit = limit
        self.size = 0
        """The current size in bytes."""

    def take(self, session: str, messages: Sequence[Message]) -> tuple[int, bytearray]:
        """Remove a session's entry and return how many of these messages, from the first on, are encoded in it, and their
        bytes. The caller owns the bytes: they grow in place, since copying a long conversation costs page faults."""
        before, encoded = self._entries.pop(session, ((), bytearray()))
        self.size -= len(encoded)
        return (len(before), encoded) if starts_with(messages, before) else (0, bytearray())

    def joined(self, session: str, messages: Sequence[Message], encode: Callable[[Message], bytes]) -> bytearray:
        """Return the messages, each encoded by itself, joined by commas."""
        known, joined = self.take(session, messages)
        for message in messages[known:]:
            joined += b"," * bool(joined) + encode(message)
        self.put(session, messages, joined)
        return joined

    def put(self, session: str, messages: Sequence[Message], encoded: bytearray) -> None:
        """Store messages with their encoding."""
        self._entries[session] = messages, encoded
        self.size += len(encoded)
        while self.size > self._limit and self._entries:
            _, evicted = self._entries.pop(next(iter(self._entries)))
            self.size -= len(evicted)


def chat_body(head: bytes, instructions: str, messages: bytearray) -> bytes:
    """Return a JSON body: the fields of `head`, and `messages` with the instructions as the first one."""
    system = msgspec.json.encode({"role": "system", "content": instructions}) if instructions else b""
    between = b"," if system and messages else b""
    return b"".join((head[:-1], b',"messages":[', system, between, messages, b"]}"))


def accepted_name(tool: str, *, max_length: int = 64, also: str = "") -> str:
    """Return the name with an underscore for each character that the service does not accept, and before a leading digit or
    hyphen. Accepted are letters, digits, `_`, `-` and those in `also`; at most `max_length` characters are returned. A model
    may call a tool that does not exist, and its service would refuse every later request with an invalid name."""
    name = re.sub(f"[^A-Za-z0-9_{re.escape(also)}-]", "_", tool)
    if not re.match("[A-Za-z_]", name):
        name = f"_{name}"
    return name[:max_length]
