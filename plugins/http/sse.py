"""Parsers for server-sent events (HTML standard, section 9.2) and for lines, in bounded memory.

Lines are split as bytes at CR, LF or CRLF, never as text, where U+2028 would also end a line.

No library: httpx-sse has no limit on a line or an event, and takes twice the time for each event.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which may precede the first line."""


class LineTooLong(ValueError):
    """A line exceeds the limit."""


class LineStream:
    """An incremental parser of lines. `limit` is the maximum size of an incomplete line in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()  # grows in place

    @property
    def rest(self) -> bytes:
        """The text after the last line, stripped."""
        return bytes(self._rest).strip()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the non-blank lines that this chunk completes, without their ends.

        Raises:
            LineTooLong: A line exceeds the limit.
        """
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
    """An event: its `data` lines joined by newlines, and its `event` name, or ""."""

    data: bytes
    event: str = ""


class EventTooLong(ValueError):
    """A line or event exceeds the limit."""


class EventStream:
    """An incremental parser of events. `limit` is the maximum size of an event in bytes.

    An unterminated last event is dropped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()  # an incomplete line, which grows in place
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._start: bytes | None = b""
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that this chunk completes.

        Raises:
            EventTooLong: A line or event exceeds the limit.
        """
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
        """Return the chunk without a byte order mark and with LF line ends."""
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
