"""What was said in a session, out of its events, and the chunks of it that are found.

Only what a person wrote and the assistant answered. Not what tools were given or returned: files, pages and what the memory
found stand elsewhere, would be most of what there is, may hold instructions of strangers, and the answer says what of it
mattered. Not commands and their answers, and nothing that the gateway adds: instructions, what was recalled, summaries.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from plugins.api.memory.chunks import OVERLAP, TOKENS, Chunk, cut
from plugins.api.memory.own_lines import own_lines
from sessions.events.events import (
    CommandAnswered,
    MessageReceived,
    ModelReplied,
    Recorded,
    SessionClosed,
    SessionForked,
    TurnEnded,
    TurnJoined,
    TurnStarted,
    kind_of,
)
from sessions.events.tokens import estimate

ASSISTANT = "assistant"
"""What the assistant is called among those who speak."""

JOINED = 120
"""Tokens up to which short exchanges that follow each other are one chunk: "thank you" alone is found by nobody."""

QUESTION = 80
"""Characters of the question that stand over the later chunks of a long exchange."""

TELLING = frozenset(
    kind_of(kind)
    for kind in (
        MessageReceived,
        TurnStarted,
        TurnJoined,
        ModelReplied,
        TurnEnded,
        CommandAnswered,
        SessionClosed,
        SessionForked,
    )
)
"""The kinds of events that `said_in` looks at."""


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was said: the seq and the time of the event, who said it, whether others read along, and whether the
    turn that took it ended without an answer."""

    seq: int
    at: datetime
    speaker: str
    text: str
    group: bool = False
    unanswered: bool = False

    @property
    def asks(self) -> bool:
        """Whether a person said it."""
        return self.speaker != ASSISTANT


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Whose session it is, and by which path and key it goes."""

    path: str
    owner: str
    key: str


def said_in(events: Iterable[Recorded]) -> tuple[list[Utterance], bool]:
    """What was said, in the order in which it was, up to the first message that no turn has answered or given up yet; and
    whether there is such a one. Nothing is known to be said in a group before a message there says so."""
    said: list[Utterance] = []
    waiting: dict[int, Utterance] = {}
    asked: dict[int, Utterance] = {}  # what the running turn has taken, and has not answered
    group = False
    for recorded in events:
        match recorded.event:
            case MessageReceived() as message:
                group = message.chat == "group"
                waiting[recorded.seq] = _said(recorded, message.sender, message.text, group)
            case TurnStarted(takes=takes):
                said += _given_up(asked)
                asked = {seq: taken for seq in takes if (taken := waiting.pop(seq, None))}
            case TurnJoined(takes=takes):
                asked |= {seq: taken for seq in takes if (taken := waiting.pop(seq, None))}
            case ModelReplied(text=text) if text.strip():
                said += [*asked.values(), _said(recorded, ASSISTANT, text, group)]
                asked = {}
            case TurnEnded():
                said += _given_up(asked)
                asked = {}
            case CommandAnswered(answers=seq):
                waiting.pop(seq, None)
            case SessionClosed() | SessionForked():
                waiting.clear()  # what is left is the command that closed it, or waits in the session that was forked
            case _:
                pass
    end = min((*waiting, *asked), default=None)
    told = sorted((each for each in said if each.text), key=lambda each: each.seq)
    return [each for each in told if end is None or each.seq < end], end is not None


def _given_up(asked: Mapping[int, Utterance]) -> list[Utterance]:
    """The messages of a turn that ended without an answer to them."""
    return [msgspec.structs.replace(each, unanswered=True) for each in asked.values()]


def only_asks(chunk: Chunk, question: str) -> bool:
    """Return True if a chunk of a session says nothing but what the question says: it was asked before, and not answered."""
    if chunk.source != "sessions" or ASSISTANT in chunk.senders:
        return False
    lines, asked = chunk.text.split("\n"), _plain(question)
    for speaker in chunk.senders:
        lines = [line.removeprefix(f"{speaker}: ") for line in lines]
    return all(_plain(line) in asked for line in lines)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _said(recorded: Recorded, speaker: str, text: str, group: bool) -> Utterance:
    text = "\n".join(line for _, line in own_lines(text)).strip()
    return Utterance(seq=recorded.seq, at=datetime.fromisoformat(recorded.at), speaker=speaker, text=text, group=group)


def chunks_of_dialogue(
    said: Sequence[Utterance], of: Conversation, day: Callable[[datetime], str]
) -> tuple[list[Chunk], int | None]:
    """The chunks, in order, and the seq at which the last of the groups begins from which they are made: whoever goes on
    from there later gets what the whole would have given. None where nothing was said. `day` is the day, YYYY-MM-DD, on
    which a moment was."""
    groups = list(_groups(said, day))
    chunks = [chunk for group in groups for chunk in _chunks(group, of, day(group[0].at))]
    return chunks, groups[-1][0].seq if groups else None


def _exchanges(said: Sequence[Utterance]) -> Iterator[list[Utterance]]:
    """What a person said with the answers to it; what was not answered is one by itself."""
    exchange: list[Utterance] = []
    for each in said:
        if each.asks and exchange and (not exchange[-1].asks or exchange[-1].unanswered or each.unanswered):
            yield exchange
            exchange = []
        exchange.append(each)
    if exchange:
        yield exchange


def _groups(said: Sequence[Utterance], day: Callable[[datetime], str]) -> Iterator[list[Utterance]]:
    """Exchanges, short ones together where they are of one day and one kind of chat."""
    group: list[Utterance] = []
    size = 0
    for exchange in _exchanges(said):
        first = exchange[0]
        cost = sum(estimate(line) for each in exchange for _, line in _lines(each))
        alike = bool(group) and (day(group[0].at), group[0].group) == (day(first.at), first.group)
        alike = alike and not (group[-1].unanswered or first.unanswered)
        if group and not (alike and size + cost <= JOINED):
            yield group
            group, size = [], 0
        group += exchange
        size += cost
    if group:
        yield group


def _lines(said: Utterance) -> Iterator[tuple[int, str]]:
    """The lines of it, the first with its speaker."""
    for number, line in enumerate(said.text.split("\n")):
        yield said.seq, line if number else f"{said.speaker}: {line}"


def _chunks(group: Sequence[Utterance], of: Conversation, day: str) -> Iterator[Chunk]:
    by_seq = {each.seq: each for each in group}
    question = " ".join(group[0].text.split())
    for number, piece in enumerate(cut([line for each in group for line in _lines(each)], TOKENS, OVERLAP)):
        first, last = piece[0][0], piece[-1][0]
        speakers = [by_seq[seq].speaker for seq, _ in piece]
        yield Chunk(
            path=of.path,
            first=first,
            last=last,
            headings=(of.key, question[:QUESTION]) if number else (of.key,),
            text="\n".join(line for _, line in piece).strip(),
            day=day,
            owner=of.owner,
            senders=tuple(dict.fromkeys(speakers)),
            private=not all(each.group for each in group),
        )
