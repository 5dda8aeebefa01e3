"""Server-sent events, as the HTML standard's section 9.2 has them: bytes in, events out, in bounded memory.

Lines are split as bytes at CR, LF or CRLF and never as text, where a model's U+2028 would count as a line's end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which may stand before the first line."""


class LineTooLong(ValueError):
    """A line is longer than the limit."""


class LineStream:
    """Feed it chunks as they come; `limit` bounds the bytes of a line whose end has not come."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()  # it grows in place, however small the chunks

    @property
    def rest(self) -> bytes:
        """What follows the last end of a line, without white space around it."""
        return bytes(self._rest).strip()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk ends, without their ends; blank ones are left out. Raises LineTooLong."""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = bytes(self._rest) + piece if self._rest else piece
            self._rest.clear()
            if line.strip():
                yield line
        self._rest += rest
        if len(self._rest) > self._limit:
            raise LineTooLong(f"a line is longer than {self._limit} bytes")


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
        self._rest = bytearray()  # of a line whose end has not come; it grows in place, however small the chunks
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._start: bytes | None = b""
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that this chunk completes. Raises EventTooLong."""
        first, *others = self._plain(chunk).split(b"\n")
        if others:
            whole = bytes(self._rest) + first if self._rest else first
            self._rest = bytearray(others.pop())
            for line in (whole, *others):
                if (event := self._take(line)) is not None:
                    yield event
        else:
            self._rest += first
        if len(self._rest) > self._limit:
            raise EventTooLong(f"a line is longer than {self._limit} bytes")

    def _plain(self, chunk: bytes) -> bytes:
        """The chunk without a mark at the stream's start, and with LF for every end of a line."""
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < len(_MARK) and _MARK.startswith(chunk):
                self._start = chunk
                return b""
            chunk, self._start = chunk.removeprefix(_MARK), None
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF, whose first half ended the line already
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

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
