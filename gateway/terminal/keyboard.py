"""Lines from standard input, read in a thread.

The thread reads the bare descriptor: this works for terminals, pipes and files, leaves the descriptor blocking (the output
may share it), and does not delay the end of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import AsyncIterator

PIECE = 64 * 1024
WAITING_LINES = 64
"""Lines that are read ahead."""

PASTING_SECONDS = 0.05
"""Seconds within which the next line of a pasted text arrives at a terminal. Nobody types that fast."""

LONGEST_PASTE = 1024 * 1024
"""Bytes of a pasted text from which on it is taken as it is."""


class Keyboard:
    """The lines of a descriptor; create it inside the event loop. At a terminal, the lines of a pasted text are one.

    Use `lines`, which can be stopped and resumed, or `read_all`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_terminal = os.isatty(descriptor)
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(WAITING_LINES)
        self._started = False
        self._lines: deque[bytes] = deque()
        """Lines that were read and not consumed."""
        self._rest = b""
        """The beginning of the next line."""

    async def lines(self) -> AsyncIterator[str]:
        """Yield each line without its line break."""
        self._start()
        while True:
            while self._lines:
                yield _text(self._lines.popleft())
            if not (piece := await self._pieces.get()):
                break
            if self._is_terminal and piece.endswith(b"\n"):
                self._lines.append(piece.removesuffix(b"\n"))
                continue
            *whole, self._rest = (self._rest + piece).split(b"\n")
            self._lines.extend(whole)
        if self._rest:
            yield _text(self._rest)

    async def read_all(self) -> str:
        """Return the rest of the input."""
        self._start()
        pieces = []
        while piece := await self._pieces.get():
            pieces.append(piece)
        return _text(b"".join(pieces))

    def _start(self) -> None:
        if not self._started:  # two threads would hand on their lines in any order
            self._started = True
            threading.Thread(target=self._read, name="keyboard", daemon=True).start()

    def _has_more(self) -> bool:
        """Return True if more arrives at once. Blocks for a moment."""
        return bool(select.select([self._descriptor], [], [], PASTING_SECONDS)[0])

    def _read(self) -> None:
        # RuntimeError: the event loop has ended; the rest is discarded.
        with contextlib.suppress(RuntimeError):
            ended = False
            while not ended:
                piece = self._read_piece()
                ended = not piece
                while self._is_terminal and not ended and len(piece) < LONGEST_PASTE and self._has_more():
                    more = self._read_piece()
                    piece, ended = piece + more, not more
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), self._loop).result()
                if piece and ended:
                    asyncio.run_coroutine_threadsafe(self._pieces.put(b""), self._loop).result()

    def _read_piece(self) -> bytes:
        try:
            return os.read(self._descriptor, PIECE)
        except OSError:
            return b""  # a terminal that went away ends the input


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")
