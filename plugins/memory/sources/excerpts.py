"""Excerpts of a session as text, from any event on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo

from plugins.api.memory.scope import Scope
from plugins.memory.sources.dialogue import ASSISTANT, Utterance
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged
from sessions.events.events import MessageReceived, ModelReplied, Recorded
from sessions.state.truncation import head_and_tail
from sessions.store.header import read_header
from sessions.store.reading import StoredLog

PAGE = 256 * 1024
"""Bytes of a log that are read at once."""

LONGEST, LONGEST_TEXT = 24_000, 4_000
"""Characters of an excerpt, and bytes of one message in it, at most."""


def excerpt(log: StoredLog, first: int, count: int, scope: Scope, zone: tzinfo | None) -> str:
    """Return the messages among `count` events from `first` on, one per line.

    A truncated excerpt ends with the number to continue at.

    Args:
        log: The log of the session.
        first: Sequence number of the first event.
        count: Number of events.
        scope: Who may read: "" is returned for others, and in a group only messages of groups.
        zone: The time zone, None for the system's.

    Raises:
        UnknownSession: The session does not exist.
        StorageFailed: The journal cannot be read.
        InvalidLine: A line is damaged.
    """
    with log.read() as lines:
        whose = read_header(lines)
    if scope.owners is not None and whose.person not in scope.owners:
        return ""
    said = _said(_events(log, first, first + count))
    return _told((each for each in said if scope.private or each.group), zone)


def _told(said: Iterable[Utterance], zone: tzinfo | None) -> str:
    shown: list[str] = []
    room = LONGEST
    for each in said:
        when = each.at.astimezone(zone)
        text = head_and_tail(each.text.strip(), LONGEST_TEXT)
        entry = f"[{each.seq}] {when:%Y-%m-%d %H:%M} {each.speaker}: {text}"
        if shown and len(entry) > room:
            shown.append(f"[Continues at {each.seq}.]")
            break
        shown.append(entry)
        room -= len(entry)
    return "\n".join(shown)


def _events(log: StoredLog, first: int, end: int) -> Iterator[Recorded]:
    """Yield the events from `first` up to `end`, stopping at damage."""
    while first < end:
        try:
            lines = log.lines(first, PAGE)[: end - first]
            events = [decode(line) for line in lines]
        except (JournalDamaged, InvalidLine):
            return
        if not events:
            return
        yield from events
        first += len(events)


def _said(events: Iterable[Recorded]) -> Iterator[Utterance]:
    """Yield the messages among the events, including commands."""
    group = False
    for recorded in events:
        event = recorded.event
        if isinstance(event, MessageReceived):
            group = event.chat == "group"
        if isinstance(event, MessageReceived | ModelReplied) and event.text.strip():
            speaker = event.sender if isinstance(event, MessageReceived) else ASSISTANT
            at = datetime.fromisoformat(recorded.at)
            yield Utterance(seq=recorded.seq, at=at, speaker=speaker, text=event.text, group=group)
