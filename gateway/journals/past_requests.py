"""Past requests of a session, rebuilt from its journal: each with the transcript that it was built from.

The context of a request is a fold over all events before it, so the journal is read from the start: run these functions in
a thread.
"""

from __future__ import annotations

from typing import TypeAlias

from sessions.events.events import Recorded, RequestSent
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript, Unfolding
from sessions.store.reading import StoredLog

PastRequest: TypeAlias = tuple[Recorded, Transcript]
"""A `request_sent` event, and the transcript before it."""


NOTHING = Transcript()


def requests_of_turn(log: StoredLog, turn: int | None, begin: Transcript = NOTHING) -> list[PastRequest]:
    """Return the answer requests of a turn in order, by default of the last turn that asked a model.

    `begin` is the transcript at an event before them. Raises JournalDamaged, UnknownSession, StorageFailed.
    """
    transcript, asked = begin, list[PastRequest]()
    for event in log.events(begin.head + 1):
        if turn is not None and transcript.turn > turn:
            break
        is_request = isinstance(event.event, RequestSent) and event.event.purpose == "answer"
        if is_request and turn in (None, event.turn):
            if asked and asked[-1][0].turn != event.turn:
                asked.clear()
            asked.append((event, transcript))
        transcript = advance(log, transcript, event)
    return asked


def transcript_before(log: StoredLog, seq: int, begin: Transcript = NOTHING) -> Transcript:
    """Return the transcript of the events before `seq`. `begin` and errors are as in `requests_of_turn`."""
    transcript = begin
    for event in log.events(begin.head + 1):
        if event.seq >= seq:
            break
        transcript = advance(log, transcript, event)
    return transcript


def advance(log: StoredLog, transcript: Transcript, event: Recorded) -> Transcript:
    """Return the transcript after the next event of the journal; if that event restored messages to the view, the
    journal is read again."""
    after = evolve(transcript, event)
    return after if after.stale is None else _unfolded(log, after.stale)


def _unfolded(log: StoredLog, unfolding: Unfolding) -> Transcript:
    """Return the transcript up to an event that restored messages to the view."""
    transcript = Transcript(unfolding=unfolding)
    for event in log.events():
        transcript = evolve(transcript, event)
        if event.seq == unfolding.until:
            break
    return transcript
