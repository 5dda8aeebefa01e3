"""Generated journals, identical in form to those of the gateway and written without syncing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from sessions.events.codec import encode
from sessions.events.events import (
    FORMAT,
    Event,
    InstructionsSet,
    MessageReceived,
    ModelReplied,
    Recorded,
    RequestSent,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Usage
from sessions.store.protocols import START, Position

EVENTS_A_TURN = 5


def write_journal(folder: Path, session: str, *, key: str, turns: int) -> Position:
    """Write `folder/<session>.jsonl` with a number of finished turns and return its end position."""
    return write_events(folder, session, _events(session, key, turns))


def write_events(folder: Path, session: str, events: Iterable[tuple[int | None, Event]]) -> Position:
    """Write `folder/<session>.jsonl` with events and their turns and return its end position."""
    position = START
    with (folder / f"{session}.jsonl").open("xb") as file:
        for turn, event in events:
            recorded = Recorded(seq=position.seq + 1, at="2026-11-21T03:12:41.123Z", turn=turn, event=event)
            line, digest = encode(recorded, position.sum)
            file.write(line)
            position = msgspec.structs.replace(position, seq=recorded.seq, offset=position.offset + len(line), sum=digest)
    (folder / f"{session}.jsonl").chmod(0o600)
    return position


def _events(session: str, key: str, turns: int) -> Iterator[tuple[int | None, Event]]:
    yield None, SessionOpened(format=FORMAT, session=session, key=key, person="owner")
    yield None, InstructionsSet(text="You are brief.", tools=(), notes=(), parameters={})
    for turn in range(1, turns + 1):
        received = 3 + (turn - 1) * EVENTS_A_TURN
        for event in _turn(turn, received):
            yield (None if isinstance(event, MessageReceived) else turn), event


def _turn(turn: int, received: int) -> tuple[Event, ...]:
    return (
        MessageReceived(
            id=f"message-{turn}",
            client="benchmark",
            sender="owner",
            channel="websocket",
            chat="private",
            text=f"Message {turn}: what is the shell called that a crab leaves behind?",
            attachments=(),
        ),
        TurnStarted(takes=(received,), provider="openai", model="fake", window=None, reserve=0),
        RequestSent(purpose="answer", sha256="0" * 64, messages=2 * turn, tokens=40 * turn),
        ModelReplied(
            reply=1,
            model="fake",
            text="The shell is called an exuvia; it is what an animal leaves behind when it moults.",
            calls=(),
            stop="end",
            usage=Usage(input=40 * turn, output=16),
        ),
        TurnEnded(outcome="replied", millis=5),
    )
