"""The output of a running tool, shown to subscribers as it comes: transient state, not events.

Only the end is kept. Subscribers read it at their own pace by offset; the whole output is in the call's result.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from plugins.support.secrets import held_back, scrubbed
from sessions.events.codec import replace_surrogates
from sessions.events.events import CallRef

KEPT_CHARACTERS = 64 * 1024
"""Code points of a running tool's output that are kept."""


class LiveOutput:
    """The output of one call. `after` is the seq of its `tool_called`: only clients that have seen that event read it.

    `changed` is called on the event loop whenever there is more to read.
    """

    def __init__(self, turn: int, call: CallRef, after: int, changed: Callable[[], None]) -> None:
        self.turn = turn
        self.call = call
        self.after = after
        self.end = 0
        """The number of code points so far, including those that are no longer kept."""
        self._changed = changed
        self._ended = False
        self._pieces: deque[str] = deque()
        self._kept = 0
        self._held = ""
        """The end of the output if it may be the beginning of a secret."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def add(self, text: str) -> None:
        """Add a piece, from any thread. What comes after the call has ended is ignored."""
        if not isinstance(text, str):
            raise TypeError(f"progress takes a text, not {type(text).__name__}")
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.add, text)
        elif not self._ended:
            # Longer pieces are cut before they are scrubbed: only the end would be kept anyway.
            text = scrubbed(self._held + replace_surrogates(text[-2 * KEPT_CHARACTERS :]))
            held = held_back(text)
            self._held, shown = text[len(text) - held :], text[: len(text) - held]
            if shown:
                self._append(shown)
                self._changed()

    def close(self) -> None:
        """End the output: the call has a result."""
        self._ended = True

    def since(self, offset: int) -> tuple[int, str]:
        """Return what is kept of the output from an offset on, and the offset at which that begins."""
        start = max(offset, self.end - min(self._kept, KEPT_CHARACTERS))
        missing, pieces = self.end - start, []
        for piece in reversed(self._pieces):
            if missing <= 0:
                break
            pieces.append(piece[-missing:])
            missing -= len(piece)
        return start, "".join(reversed(pieces))

    def _append(self, text: str) -> None:
        self.end += len(text)
        text = text[-KEPT_CHARACTERS:]
        self._pieces.append(text)
        self._kept += len(text)
        while self._kept - len(self._pieces[0]) >= KEPT_CHARACTERS:
            self._kept -= len(self._pieces.popleft())
