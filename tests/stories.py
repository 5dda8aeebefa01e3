"""What the tests tell their stories with: a clock that is set, a log in memory, events made short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sessions.events.codec import FIRST, encode
from sessions.events.errors import StorageFailed
from sessions.events.events import Event, MessageReceived, Recorded, SessionOpened
from sessions.events.messages import Message
from sessions.state.view import View

AT = "2026-11-21T12:00:00.000Z"


def view_of(messages: Sequence[Message]) -> View:
    """A view of these messages, placed at 1, 2, …"""
    view = View()
    for placed, message in enumerate(messages, start=1):
        view = view.grown(message, placed)
    return view


class MemoryLog:
    """A `Log` without a disk: urgent lines become durable after some `steps` of the loop, those before them with them."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.end = 0
        self.durable = 0
        self.steps = 1
        self.failure: StorageFailed | None = None
        self._durable: Callable[[int], None] = lambda _: None
        self._failed: Callable[[StorageFailed], None] = lambda _: None

    def append(self, line: bytes, *, urgent: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append(line)
        self.end += len(line)
        if urgent:
            self._commit_after(self.steps, self.end)
        else:
            asyncio.get_running_loop().call_later(0.05, self._commit)

    def on_commit(self, durable: Callable[[int], None], failed: Callable[[StorageFailed], None]) -> None:
        self._durable, self._failed = durable, failed

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        size, lines = 0, list[bytes]()
        for line in self.written[first - 1 :]:
            lines.append(line)
            size += len(line)
            if size >= limit:
                break
        return lines

    async def close(self) -> None:
        self._commit()

    def fail(self) -> None:
        """Lose everything that is not durable yet."""
        self.failure = StorageFailed("the disk is full")
        self._failed(self.failure)

    def _commit_after(self, steps: int, upto: int) -> None:
        if steps:
            asyncio.get_running_loop().call_soon(self._commit_after, steps - 1, upto)
        else:
            self._commit(upto)

    def _commit(self, upto: int | None = None) -> None:
        durable = self.end if upto is None else upto
        if self.failure is None and self.durable < durable:
            self.durable = durable
            self._durable(self.durable)


def lines_of(events: Sequence[Event | tuple[Event, int]]) -> list[bytes]:
    """The lines of a journal with these events, the first with seq 1; a pair carries its turn."""
    lines, digest = [], FIRST
    for seq, item in enumerate(events, 1):
        event, turn = item if isinstance(item, tuple) else (item, None)
        line, digest = encode(Recorded(seq=seq, at=AT, turn=turn, event=event), digest)
        lines.append(line)
    return lines


def opened(session: str = "20261121-120000-aaaaaa", key: str = "main", **fields: Any) -> SessionOpened:
    return SessionOpened(**{"format": 1, "session": session, "key": key, "person": "owner", **fields})


def received(text: str, id_: str = "m1") -> MessageReceived:
    return MessageReceived(
        id=id_, client="test", sender="owner", channel="websocket", chat="private", text=text, attachments=()
    )
