"""The progress of messages and turns, computed from the client's signals."""

from __future__ import annotations

import asyncio
import math
from enum import Enum
from typing import assert_never

from gateway.protocol.client_frames import Deleted, Delta, Output, Paused, Reasoning, Refusal, Settings
from gateway.protocol.slash_commands import parse_command
from gateway.support.printable import one_line
from gateway.support.sentences import short_call
from gateway.terminal.client.signals import Connected, Disconnected, Earlier, Happened, Postponed, Signal
from sessions.events.events import (
    ApprovalAsked,
    ApprovalGiven,
    CommandAnswered,
    MessageReceived,
    ModelReplied,
    Recorded,
    RequestedCall,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnResumed,
    TurnStarted,
)

TOOL_CHARACTERS = 60
REASON_CHARACTERS = 60


class Activity:
    """The current activity, for the line above the prompt: the state of the connection and of the running turn.

    `now` is in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._connected = True
        self._doing = ""
        self._pause: Paused | None = None
        self._again = 0.0
        """The time at which a refused request is sent again."""
        self._since = 0.0
        self._calls: dict[int, tuple[RequestedCall, ...]] = {}

    def fold(self, signal: Signal, now: float) -> None:
        """Update the state with a signal."""
        match signal:
            case Connected():
                self._connected, self._since = True, now
            case Disconnected():
                self._connected, self._since = False, now
            case Delta():
                self._pause = None
                self._now_doing("writing", now)
            case Reasoning():
                self._pause = None
                self._now_doing("thinking", now)
            case Paused():
                self._pause, self._again = signal, now + signal.seconds
            case Earlier() | Postponed() | Refusal() | Settings() | Deleted() | Output():
                pass
            case Happened():
                self._event(signal, now)
            case _:
                assert_never(signal)

    def sentence(self, now: float, *, running: int, waiting: int, unsent: int) -> str | None:
        """Return a description of the activity with its duration, or None if idle.

        Args:
            running: The number of running turns.
            waiting: The messages that the gateway has accepted and not yet started.
            unsent: The messages that the gateway has not acknowledged.
        """
        seconds = int(now - self._since)
        spent = f" · {seconds} s" if seconds else ""
        queue = (f" · {waiting} waiting" if waiting else "") + (f" · {unsent} to send" if unsent else "")
        if not self._connected:
            return f"not connected, reconnecting{spent}{queue}"
        if running and self._pause is not None and now < self._again:
            reason = one_line(self._pause.reason, REASON_CHARACTERS)
            return (
                f"the provider is not accepting requests ({reason}); trying again in {math.ceil(self._again - now)} s{queue}"
            )
        if running:
            return (self._doing or "thinking") + spent + queue
        return "waiting for the gateway" if waiting or unsent else None

    def _event(self, happened: Happened, now: float) -> None:
        seq, event = happened.recorded.seq, happened.recorded.event
        if self._pause is not None and happened.recorded.turn == self._pause.turn:
            self._pause = None
        match event:
            case TurnStarted() | TurnResumed() | ApprovalGiven():
                self._now_doing("thinking", now)
            case ModelReplied(calls=calls):
                self._calls = {seq: calls}
            case ToolCalled(call=ref):
                calls = self._calls.get(ref.of, ())
                tool = short_call(calls[ref.index], TOOL_CHARACTERS) if ref.index < len(calls) else "a tool"
                self._doing, self._since = f"running {tool}", now
            case ToolReturned():
                self._now_doing("thinking", now)
            case TurnEnded():
                self._now_doing("", now)
            case _:
                # No other kind of event changes the activity, nor do kinds that only a newer gateway knows.
                pass

    def _now_doing(self, doing: str, now: float) -> None:
        if doing != self._doing:
            self._doing, self._since = doing, now


class Ending(Enum):
    """The end of a message for the client that sent it."""

    WELL = "well"
    FAILED = "failed"
    PARKED = "parked"
    """Its turn, or the one before it, waits for the answer to a question about a tool call."""


class OpenQuestions:
    """The open questions about tool calls: `asked` by id, oldest first, and the turns that wait for an answer (`parked`)."""

    def __init__(self) -> None:
        self.asked: dict[str, ApprovalAsked] = {}
        self.parked: set[tuple[str, int | None]] = set()
        self._turns: dict[str, tuple[str, int | None]] = {}

    def fold(self, session_id: str, recorded: Recorded) -> None:
        """Update the state with an event."""
        turn = (session_id, recorded.turn)
        match recorded.event:
            case ApprovalAsked() as asked:
                self.asked[asked.approval], self._turns[asked.approval] = asked, turn
                self.parked.add(turn)
            case ApprovalGiven(approval=approval):
                self._remove(approval)
                if turn not in self._turns.values():
                    self.parked.discard(turn)
            case TurnEnded():
                self.parked.discard(turn)
                for approval in [each for each, asking in self._turns.items() if asking == turn]:
                    self._remove(approval)
            case _:
                pass  # no other kind of event is about questions

    def _remove(self, approval: str) -> None:
        self.asked.pop(approval, None)
        self._turns.pop(approval, None)


class PendingReplies:
    """The unanswered messages of this client, the running turns, and the open questions."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        """Set while no answer to a message of this client is expected."""
        self.questions = OpenQuestions()
        self._ends: dict[str, asyncio.Future[Ending]] = {}
        self._places: dict[tuple[str, int], str] = {}
        """The ids of the messages that were seen in the log and not yet taken, by session and seq."""
        self._turns: dict[tuple[str, int | None], list[str]] = {}
        """The ids of this client's messages in each running turn, by session and ordinal."""
        self._released: set[tuple[str, int | None]] = set()
        """The turns of others that went on after an answer which a command of this client has probably given."""
        self._commands: set[tuple[str, int]] = set()
        """The places of messages that are commands: these do not wait for a turn."""

    @property
    def running(self) -> bool:
        """True if an answer is expected."""
        return bool(self._ends) or self.turns > 0

    @property
    def parked(self) -> bool:
        """True if a turn waits for an answer."""
        return bool(self.questions.parked)

    @property
    def turns(self) -> int:
        """The number of running turns, those of other clients included."""
        return len(self._turns.keys() - self.questions.parked)

    @property
    def waiting(self) -> int:
        """The number of messages of this client that no turn has taken yet."""
        return len(self._ends) - sum(message_id in self._ends for ids in self._turns.values() for message_id in ids)

    def expect(self, message_id: str) -> asyncio.Future[Ending]:
        """Return a future for the end of a message that is being sent."""
        end: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._ends[message_id] = end
        self.idle.clear()
        return end

    def finish(self, message_id: str, ending: Ending) -> None:
        """Complete a message: it gets no further answer."""
        end = self._ends.pop(message_id, None)
        if end is not None and not end.done():
            end.set_result(ending)
        self._notify()

    def concerns(self, session_id: str, recorded: Recorded) -> bool:
        """Return True if an event belongs to a message of this client. Call before `fold`."""
        match recorded.event:
            case MessageReceived(id=message_id):
                return message_id in self._ends
            case CommandAnswered(answers=seq):
                return (session_id, seq) in self._places
            case _:
                turn = (session_id, recorded.turn)
                return bool(self._turns.get(turn)) or turn in self._released

    def takes(self, session_id: str, recorded: Recorded) -> list[str]:
        """Return the ids of this client's messages that an event adds to a turn. Call before `fold`."""
        match recorded.event:
            case TurnStarted(takes=takes) | TurnJoined(takes=takes):
                return [self._places[session_id, seq] for seq in takes if (session_id, seq) in self._places]
            case _:
                return []

    def fold(self, session_id: str, recorded: Recorded) -> None:
        """Update the state with an event."""
        self.questions.fold(session_id, recorded)
        self._fold(session_id, recorded)
        self._notify()

    def _notify(self) -> None:
        own = {turn for turn, ids in self._turns.items() if ids} | self._released
        if self._ends or own - self.questions.parked:
            self.idle.clear()
        else:
            self.idle.set()

    def _fold(self, session_id: str, recorded: Recorded) -> None:
        match recorded.event:
            case MessageReceived() as message if message.id in self._ends:
                self._received(message, (session_id, recorded.seq))
            case ApprovalAsked():
                for message_id in self._turns.setdefault((session_id, recorded.turn), []):
                    self.finish(message_id, Ending.PARKED)
                self._end_waiting(session_id)
            case ApprovalGiven() if self._commands:
                self._released.add((session_id, recorded.turn))
            case TurnStarted(takes=takes) | TurnJoined(takes=takes):
                ids = self.takes(session_id, recorded)
                for seq in takes:
                    self._places.pop((session_id, seq), None)
                self._turns.setdefault((session_id, recorded.turn), []).extend(ids)
            case TurnEnded(outcome=outcome):
                self._released.discard((session_id, recorded.turn))
                for message_id in self._turns.pop((session_id, recorded.turn), ()):
                    self.finish(message_id, Ending.WELL if outcome in ("replied", "silent") else Ending.FAILED)
            case CommandAnswered(answers=seq, failed=failed):
                if (session_id, seq) in self._places:
                    self.finish(self._places.pop((session_id, seq)), Ending.FAILED if failed else Ending.WELL)
            case _:
                # No other kind of event starts or completes a message, nor do kinds that only a newer gateway knows.
                pass

    def _received(self, message: MessageReceived, place: tuple[str, int]) -> None:
        self._places[place] = message.id
        if parse_command(message.text) is not None:
            self._commands.add(place)
        self._end_waiting(place[0])

    def _end_waiting(self, session_id: str) -> None:
        """Complete the messages that wait behind a parked turn of this session."""
        if any(session == session_id for session, _ in self.questions.parked):
            for place, message_id in self._places.items():
                if place[0] == session_id and place not in self._commands:
                    self.finish(message_id, Ending.PARKED)
