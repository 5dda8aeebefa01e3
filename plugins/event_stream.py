"""Server-sent events, as the HTML standard's section 9.2 has them: bytes in, events out, in bounded memory.

Lines are split as bytes at CR, LF or CRLF and never as text, where a model's U+2028 would count as a line's end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event: its `data` lines joined by newlines, and its `event` name, empty if it has none."""

    data: bytes
    event: str = ""


class EventTooLong(ValueError):
    """A line or an event is longer than the limit."""


class EventStream:
    """Feed it chunks as they come; `limit` bounds the bytes of one event. What follows the last blank line is no event."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that this chunk completes. Raises EventTooLong."""
        buffer = self._rest + chunk
        if not self._begun:
            if len(buffer) < 3 and b"\xef\xbb\xbf".startswith(buffer):
                self._rest = buffer
                return
            buffer, self._begun = buffer.removeprefix(b"\xef\xbb\xbf"), True
        # A CR at the end may be half of a CRLF, which only the next chunk tells.
        held = b"\r" if buffer.endswith(b"\r") else b""
        if held:
            buffer = buffer[:-1]
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = buffer.split(b"\n")
        self._rest = rest + held
        for line in lines:
            if (event := self._take(line)) is not None:
                yield event
        if len(self._rest) > self._limit:
            raise EventTooLong(f"a line is longer than {self._limit} bytes")

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._limit:
                raise EventTooLong(f"an event is longer than {self._limit} bytes")
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, name = self._data, self._name
        self._data, self._size, self._name = [], 0, ""
        return ServerSentEvent(b"\n".join(data), name) if data else None
