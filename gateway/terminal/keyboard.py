"""Lines from standard input, read in a thread.

The thread reads the bare descriptor: this works for terminals, pipes and files, leaves the descriptor blocking (the output
may share it), and does not delay the end of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncIterator

PIECE = 64 * 1024
WAITING_LINES = 64
"""Lines that are read ahead."""


class Keyboard:
    """The lines of a descriptor; create it inside the event loop.

    Use `lines`, which can be stopped and resumed, or `read_all`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
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

    def _read(self) -> None:
        # RuntimeError: the event loop has ended; the rest is discarded.
        with contextlib.suppress(RuntimeError):
            while True:
                try:
                    piece = os.read(self._descriptor, PIECE)
                except OSError:
                    # A terminal that went away ends the input.
                    piece = b""
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), self._loop).result()
                if not piece:
                    return


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")
