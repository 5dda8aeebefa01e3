"""A log of a plugin's own, as durable as a conversation: entries are appended, never changed, and are there after a
crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from plugins.errors import PluginError


class LogUnusable(PluginError):
    """An entry cannot be kept or read: it is no JSON or too large, the log is full or damaged, the storage failed."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plugin wrote down: its number (1, 2, …), when (RFC 3339), and what, as JSON has it."""

    seq: int
    at: str
    entry: Any


class OwnLog(Protocol):
    """One file of JSON lines in the plugin's folder, in the form of the journals; it is opened by whoever first uses it."""

    async def append(self, entry: Any) -> int:
        """Write an entry down, JSON of 64 KiB at most, and return its number once it is durable. Raises LogUnusable."""
        ...

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """The durable entries behind that number, oldest first, so many at most. Raises LogUnusable."""
        ...
