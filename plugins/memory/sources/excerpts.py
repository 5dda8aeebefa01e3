"""Some of a session as it is read: who said what and when, from any event on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path

from plugins.api.memory.scope import Scope
from plugins.memory.sources.dialogue import ASSISTANT, Utterance
from sessions.attachments.store import head_and_tail
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged
from sessions.events.events import MessageReceived, ModelReplied, Recorded
from sessions.files.header import read_header
from sessions.files.reader import read_lines
from sessions.files.verify import open_journal

PAGE = 256 * 1024
"""Bytes of a journal that are read at a time."""

LONGEST, LONGEST_TEXT = 24_000, 4_000
"""Characters of an excerpt, and bytes of one message in it, at most."""


def excerpt(journal: Path, first: int, count: int, scope: Scope, zone: tzinfo | None) -> str:
    """What was said in the `count` events from the seq `first` on, a paragraph each, the times in a zone (None: the
    system's). Empty for whom the session is not; in a group, what was said in a group alone. Where it
    is too long to be shown, the last line says from where it goes on. Raises UnknownSession, StorageFailed, InvalidLine."""
    with open_journal(journal) as descriptor:
        whose = read_header(descriptor, journal.stem)
    if scope.owners is not None and whose.person not in scope.owners:
        return ""
    said = _said(_events(journal, first, first + count))
    return _told((each for each in said if scope.private or each.group), zone)


def _told(said: Iterable[Utterance], zone: tzinfo | None) -> str:
    shown: list[str] = []
    room = LONGEST
    for each in said:
        when = each.at.astimezone(zone)
        text = head_and_tail(each.text.strip(), LONGEST_TEXT)
        entry = f"[{each.seq}] {when:%Y-%m-%d %H:%M} {each.speaker}: {text}"
        if shown and len(entry) > room:
            shown.append(f"[It goes on at {each.seq}.]")
            break
        shown.append(entry)
        room -= len(entry)
    return "\n".join(shown)


def _events(journal: Path, first: int, end: int) -> Iterator[Recorded]:
    """The events from seq `first` up to the one before `end`, as far as the journal is whole."""
    while first < end:
        try:
            lines = read_lines(journal, first, PAGE)[: end - first]
            events = [decode(line) for line in lines]
        except (JournalDamaged, InvalidLine):
            return
        if not events:
            return
        yield from events
        first += len(events)


def _said(events: Iterable[Recorded]) -> Iterator[Utterance]:
    """What was said in them, commands too, as it came."""
    group = False
    for recorded in events:
        event = recorded.event
        if isinstance(event, MessageReceived):
            group = event.chat == "group"
        if isinstance(event, MessageReceived | ModelReplied) and event.text.strip():
            speaker = event.sender if isinstance(event, MessageReceived) else ASSISTANT
            at = datetime.fromisoformat(recorded.at)
            yield Utterance(seq=recorded.seq, at=at, speaker=speaker, text=event.text, group=group)
