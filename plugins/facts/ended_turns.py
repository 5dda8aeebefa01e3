"""The text of the turns of a session that have ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sessions.events.events import (
    CommandAnswered,
    MessageReceived,
    ModelReplied,
    Recorded,
    SessionForked,
    TurnEnded,
    TurnJoined,
    TurnStarted,
    kind_of,
)
from sessions.events.handed_messages import is_handed

EVENT_KINDS = frozenset(
    kind_of(kind)
    for kind in (SessionForked, MessageReceived, CommandAnswered, TurnStarted, TurnJoined, ModelReplied, TurnEnded)
)
"""The kinds of events that are read."""


COMMAND = "/remember "


class TurnText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a turn that has ended, and its place in the session.

    `first` and `end` are the sequence numbers of its first message and its end, `model` is `provider:model`. `typed` marks a
    `/remember` command instead of a turn; `ordinal` is then that of the turn before it.
    """

    ordinal: int
    first: int
    end: int
    asked: str
    answered: str
    group: bool
    replied: bool
    model: str
    typed: bool = False


def is_remember_command(text: str) -> bool:
    """Return True for `/remember` followed by text."""
    return text.startswith(COMMAND) and bool(text[len(COMMAND) :].strip())


def ended_turns(events: Iterable[Recorded]) -> list[TurnText]:
    """Return the turns that started and ended in these events, in order. In a fork, only turns after the fork."""
    turns: list[TurnText] = []
    waiting: dict[int, MessageReceived] = {}
    taken: dict[int, MessageReceived] = {}
    answers: list[str] = []
    model = ""
    running: int | None = None
    for recorded in events:
        match recorded.event:
            case SessionForked():
                turns = []
            case MessageReceived() as message:
                waiting[recorded.seq] = message
            case TurnStarted(takes=takes) as started:
                running, answers, model = recorded.turn, [], f"{started.provider}:{started.model}"
                taken = {seq: waiting.pop(seq) for seq in takes if seq in waiting}
            case TurnJoined(takes=takes):
                taken |= {seq: waiting.pop(seq) for seq in takes if seq in waiting}
            case ModelReplied(text=text) if text.strip():
                answers.append(text)
            case CommandAnswered(answers=seq, failed=False) if seq in waiting and is_remember_command(waiting[seq].text):
                turns.append(_remembered(waiting.pop(seq), seq, recorded.seq, turns[-1] if turns else None))
            case TurnEnded(outcome=outcome) if running is not None and running == recorded.turn:
                turns.append(
                    TurnText(
                        ordinal=running,
                        first=min(taken, default=recorded.seq),
                        end=recorded.seq,
                        asked="\n".join(message.text for message in taken.values() if not is_handed(message)),
                        answered="\n".join(answers),
                        group=any(message.chat == "group" for message in taken.values()),
                        replied=outcome in ("replied", "silent"),
                        model=model,
                    )
                )
                running, taken = None, {}
            case _:
                pass
    return turns


def _remembered(message: MessageReceived, seq: int, end: int, before: TurnText | None) -> TurnText:
    """Return a `/remember` command as an ended turn."""
    return TurnText(
        ordinal=before.ordinal if before else 0,
        first=seq,
        end=end,
        asked=message.text[len(COMMAND) :].strip(),
        answered="",
        group=message.chat == "group",
        replied=True,
        model=before.model if before else "",
        typed=True,
    )
