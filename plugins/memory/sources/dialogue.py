"""Messages of a session, and their chunks.

Only what people wrote and the assistant answered is indexed. Tool calls and results are left out: they are most of the text,
exist elsewhere, may contain untrusted instructions, and the answer says what mattered. So are commands with their answers
and what the gateway adds: instructions, recalled text, summaries. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from plugins.api.memory.chunks import OVERLAP, TOKENS, Chunk, cut, own_lines
from sessions.events.events import (
    CommandAnswered,
    MessageImported,
    MessageReceived,
    ModelReplied,
    Recorded,
    ReplyImported,
    SessionClosed,
    SessionForked,
    TurnEnded,
    TurnJoined,
    TurnStarted,
    kind_of,
)
from sessions.events.tokens import estimate

ASSISTANT = "assistant"
"""The assistant's name as a speaker."""

JOINED_TOKENS = 120
"""Maximum tokens of consecutive short exchanges that are joined into one chunk: nobody searches for "thank you" alone."""

QUESTION_MARKS = ("?", "？", "؟")
"""Characters that end a question."""

_SENTENCES = re.compile(r"(?<=[.!?…。！？؟])(?=\s|[^\x00-\x7f])\s*")

QUESTION_CHARACTERS = 80
"""Characters of the question in the headings of the later chunks of a long exchange."""

EVENT_KINDS = frozenset(
    kind_of(kind)
    for kind in (
        MessageReceived,
        MessageImported,
        ReplyImported,
        TurnStarted,
        TurnJoined,
        ModelReplied,
        TurnEnded,
        CommandAnswered,
        SessionClosed,
        SessionForked,
    )
)
"""The kinds of events that `messages_in` reads."""


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its sequence number, time and speaker.

    `group` is True if others read the conversation, `unanswered` if its turn ended without an answer.
    """

    seq: int
    at: datetime
    speaker: str
    text: str
    group: bool = False
    unanswered: bool = False

    @property
    def asks(self) -> bool:
        """True for a message of a person."""
        return self.speaker != ASSISTANT


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """The owner, path and key of a session."""

    path: str
    owner: str
    key: str


def messages_in(events: Iterable[Recorded]) -> tuple[list[Utterance], bool]:
    """Return the messages in order up to the first unanswered one, and whether there is such a message.

    The conversation counts as private until a message says that it is a group.
    """
    said: list[Utterance] = []
    waiting: dict[int, Utterance] = {}
    asked: dict[int, Utterance] = {}  # messages of the running turn that are not answered yet
    group = False
    for recorded in events:
        match recorded.event:
            case MessageReceived() as message:
                group = message.chat == "group"
                waiting[recorded.seq] = _utterance(recorded, message.sender, message.text, group)
            case MessageImported(sender=sender, text=text):
                said.append(_utterance(recorded, sender, text, group=False))
            case ReplyImported(text=text):
                said.append(_utterance(recorded, ASSISTANT, text, group=False))
            case TurnStarted(takes=takes):
                said += _unanswered(asked)
                asked = {seq: taken for seq in takes if (taken := waiting.pop(seq, None))}
            case TurnJoined(takes=takes):
                asked |= {seq: taken for seq in takes if (taken := waiting.pop(seq, None))}
            case ModelReplied(text=text) if text.strip():
                said += [*asked.values(), _utterance(recorded, ASSISTANT, text, group)]
                asked = {}
            case TurnEnded():
                said += _unanswered(asked)
                asked = {}
            case CommandAnswered(answers=seq):
                waiting.pop(seq, None)
            case SessionClosed() | SessionForked():
                waiting.clear()  # the closing command, or messages that belong to the parent of a fork
            case _:
                pass
    end = min((*waiting, *asked), default=None)
    messages = sorted((each for each in said if each.text), key=lambda each: each.seq)
    return [each for each in messages if end is None or each.seq < end], end is not None


def _unanswered(asked: Mapping[int, Utterance]) -> list[Utterance]:
    """Return the messages of a turn that ended without an answer."""
    return [msgspec.structs.replace(each, unanswered=True) for each in asked.values()]


def only_asks(chunk: Chunk, question: str) -> bool:
    """Return True if a chunk of a session contains nothing but questions that were not answered, or the question itself."""
    if chunk.source != "sessions" or ASSISTANT in chunk.senders:
        return False
    lines, asked = chunk.text.split("\n"), _plain(question)
    for speaker in chunk.senders:
        lines = [line.removeprefix(f"{speaker}: ") for line in lines]
    return all(_plain(line) in asked or _is_question(line) for line in lines)


def _is_question(line: str) -> bool:
    return all(sentence.endswith(QUESTION_MARKS) for sentence in _SENTENCES.split(line.strip()))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _utterance(recorded: Recorded, speaker: str, text: str, group: bool) -> Utterance:
    text = "\n".join(line for _, line in own_lines(text)).strip()
    return Utterance(seq=recorded.seq, at=datetime.fromisoformat(recorded.at), speaker=speaker, text=text, group=group)


def chunks_of_dialogue(
    said: Sequence[Utterance], of: Conversation, day: Callable[[datetime], str]
) -> tuple[list[Chunk], int | None]:
    """Return the chunks in order, and the sequence number at which the last group of messages begins.

    Continuing from there later gives the same chunks as reading everything at once.

    Args:
        said: The messages.
        of: The session.
        day: Returns the day, YYYY-MM-DD, of a moment.

    Returns:
        The chunks, and the sequence number, None if there are no messages.
    """
    groups = list(_groups(said, day))
    chunks = [chunk for group in groups for chunk in _chunks(group, of, day(group[0].at))]
    return chunks, groups[-1][0].seq if groups else None


def _exchanges(said: Sequence[Utterance]) -> Iterator[list[Utterance]]:
    """Group each message of a person with its answers; an unanswered one is an exchange by itself."""
    exchange: list[Utterance] = []
    for each in said:
        if each.asks and exchange and (not exchange[-1].asks or exchange[-1].unanswered or each.unanswered):
            yield exchange
            exchange = []
        exchange.append(each)
    if exchange:
        yield exchange


def _groups(said: Sequence[Utterance], day: Callable[[datetime], str]) -> Iterator[list[Utterance]]:
    """Join short consecutive exchanges of one day and one kind of chat."""
    group: list[Utterance] = []
    size = 0
    for exchange in _exchanges(said):
        first = exchange[0]
        cost = sum(estimate(line) for each in exchange for _, line in _lines(each))
        alike = bool(group) and (day(group[0].at), group[0].group) == (day(first.at), first.group)
        alike = alike and not (group[-1].unanswered or first.unanswered)
        if group and not (alike and size + cost <= JOINED_TOKENS):
            yield group
            group, size = [], 0
        group += exchange
        size += cost
    if group:
        yield group


def _lines(said: Utterance) -> Iterator[tuple[int, str]]:
    """Yield the lines of a message, the first one with the speaker."""
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
            headings=(of.key, question[:QUESTION_CHARACTERS]) if number else (of.key,),
            text="\n".join(line for _, line in piece).strip(),
            day=day,
            owner=of.owner,
            senders=tuple(dict.fromkeys(speakers)),
            private=not all(each.group for each in group),
        )
