"""Messages of this client that have no answer yet, folded from the session's events."""

from __future__ import annotations

import asyncio

from sessions.events.events import CommandAnswered, MessageReceived, Recorded, TurnEnded, TurnJoined, TurnStarted


class PendingReplies:
    """The unanswered messages of this client, and the running turns."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[bool]] = {}
        self._places: dict[tuple[str, int], str] = {}
        """The session and seq of each message that was seen in the log, with its id."""
        self._turns: dict[tuple[str, int | None], list[str]] = {}
        """The session and ordinal of each running turn, with the ids of its messages."""

    @property
    def running(self) -> bool:
        """True if an answer is expected."""
        return bool(self._ends or self._turns)

    @property
    def turns(self) -> int:
        """The number of running turns, those of other clients included."""
        return len(self._turns)

    @property
    def waiting(self) -> int:
        """The number of messages of this client that no turn has taken yet."""
        return len(self._ends) - sum(message_id in self._ends for ids in self._turns.values() for message_id in ids)

    def expect(self, message_id: str) -> asyncio.Future[bool]:
        """Return a future for a message that is being sent; its result tells whether it was answered successfully."""
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ends[message_id] = end
        return end

    def finish(self, message_id: str, *, well: bool) -> None:
        """Complete a message that gets no more events."""
        end = self._ends.pop(message_id, None)
        if end is not None and not end.done():
            end.set_result(well)

    def concerns(self, session_id: str, recorded: Recorded) -> bool:
        """Return True if an event belongs to a message of this client. Call before `fold`."""
        match recorded.event:
            case MessageReceived(id=message_id):
                return message_id in self._ends
            case CommandAnswered(answers=seq):
                return (session_id, seq) in self._places
            case _:
                return bool(self._turns.get((session_id, recorded.turn)))

    def takes(self, session_id: str, recorded: Recorded) -> list[str]:
        """Return the ids of this client's messages that an event adds to a turn. Call before `fold`."""
        match recorded.event:
            case TurnStarted(takes=takes) | TurnJoined(takes=takes):
                return [self._places[session_id, seq] for seq in takes if (session_id, seq) in self._places]
            case _:
                return []

    def fold(self, session_id: str, recorded: Recorded) -> None:
        """Update the state with an event."""
        match recorded.event:
            case MessageReceived(id=message_id):
                if message_id in self._ends:
                    self._places[session_id, recorded.seq] = message_id
            case TurnStarted(takes=takes) | TurnJoined(takes=takes):
                ids = self.takes(session_id, recorded)
                for seq in takes:
                    self._places.pop((session_id, seq), None)
                self._turns.setdefault((session_id, recorded.turn), []).extend(ids)
            case TurnEnded(outcome=outcome):
                for message_id in self._turns.pop((session_id, recorded.turn), ()):
                    self.finish(message_id, well=outcome in ("replied", "silent"))
            case CommandAnswered(answers=seq, failed=failed):
                if (session_id, seq) in self._places:
                    self.finish(self._places.pop((session_id, seq)), well=not failed)
            case _:
                # All other kinds neither take nor end a message, those of a newer gateway included.
                pass
