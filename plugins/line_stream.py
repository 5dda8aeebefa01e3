"""Lines of bytes, as newline-delimited JSON has them: chunks in, lines out, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator


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
