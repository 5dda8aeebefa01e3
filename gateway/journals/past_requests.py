"""Past requests of a session, rebuilt from its journal: each with the transcript that it was made of.

What a model was shown is a fold of the events before the request, so a journal is read from its beginning: for a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from gateway.journals.session_files import recorded
from sessions.events.events import Recorded, RequestSent
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript, Unfolding

Asked: TypeAlias = tuple[Recorded, Transcript]
"""A `request_sent`, and the transcript before it."""


NOTHING = Transcript()


def requests_of_turn(path: Path, turn: int | None, begin: Transcript = NOTHING) -> list[Asked]:
    """The requests for the answer of a turn, in order, or of the last turn that asked a model. `begin` is the transcript of
    the journal up to some event before them. Raises JournalDamaged, UnknownSession, StorageFailed."""
    transcript, asked = begin, list[Asked]()
    for event in recorded(path, begin.head + 1):
        if turn is not None and transcript.turn > turn:
            break
        is_request = isinstance(event.event, RequestSent) and event.event.purpose == "answer"
        if is_request and turn in (None, event.turn):
            if asked and asked[-1][0].turn != event.turn:
                asked.clear()
            asked.append((event, transcript))
        transcript = folded(path, transcript, event)
    return asked


def transcript_before(path: Path, seq: int, begin: Transcript = NOTHING) -> Transcript:
    """The transcript of the events before `seq`. Otherwise as `requests_of_turn`."""
    transcript = begin
    for event in recorded(path, begin.head + 1):
        if event.seq >= seq:
            break
        transcript = folded(path, transcript, event)
    return transcript


def folded(path: Path, transcript: Transcript, event: Recorded) -> Transcript:
    """The transcript after one more event of the journal; where that event made the view larger again, it is read anew."""
    after = evolve(transcript, event)
    return after if after.stale is None else _unfolded(path, after.stale)


def _unfolded(path: Path, unfolding: Unfolding) -> Transcript:
    """The transcript up to an event that made the view larger again."""
    transcript = Transcript(unfolding=unfolding)
    for event in recorded(path):
        transcript = evolve(transcript, event)
        if event.seq == unfolding.until:
            break
    return transcript
