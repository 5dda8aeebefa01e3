"""Which identifiers of what was said matter most. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2

import msgspec

from plugins.context.identifiers import identifiers
from plugins.context.said import Sentence, Speaker
from plugins.context.sections import DECISIONS
from plugins.context.sentences import is_correction, is_decision
from sessions.messages import AssistantMessage, Message, ToolMessage

WEIGHTS: dict[Speaker, float] = {"person": 4.0, "summary": 3.0, "assistant": 2.0}
"""What it counts that a person said it, that an earlier summary kept it, that the assistant said it."""

SETTLED = 1.5
"""What it counts that a decision or a correction names it: without its sentence it would mean nothing."""

HEARD = 4_000
"""Characters at both ends of what a tool was given or returned that are read."""

LONGEST = 200
"""Characters of an identifier that an extract lists; addresses with whole forms in them are longer."""


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """An identifier, how much it matters, and the sentence that says most of it; "" where none is known."""

    name: str
    score: float
    sentence: str


class _Weighed(msgspec.Struct):
    """An identifier while the sentences are read."""

    weight: float = 0.0
    count: int = 0
    last: int = 0
    sentence: str = ""
    rank: tuple[float, int] = (0.0, -1)


def mentions(told: Sequence[Sentence]) -> list[Mention]:
    """The identifiers of what was said, those that matter most first: said by a person, often, late."""
    weighed: dict[str, _Weighed] = {}
    for index, sentence in enumerate(told):
        for name in sentence.names:
            if len(name) <= LONGEST:
                _weigh(weighed.setdefault(name, _Weighed()), sentence, index)
    found = [
        Mention(name=name, score=each.weight * (1 + log2(each.count)) * (1 + each.last / len(told)), sentence=each.sentence)
        for name, each in weighed.items()
    ]
    return sorted(found, key=lambda mention: -mention.score)


def heard(messages: Sequence[Message]) -> list[str]:
    """The identifiers that tools were given or returned, the latest first."""
    found: dict[str, None] = {}
    for text in _machine_texts(messages):
        read = text if len(text) <= 2 * HEARD else f"{text[:HEARD]}\n{text[-HEARD:]}"
        found |= dict.fromkeys(each.text for each in identifiers(read) if each.kind == "exact" and len(each.text) <= LONGEST)
    return list(found)


def _weigh(weighed: _Weighed, sentence: Sentence, index: int) -> None:
    weight = WEIGHTS[sentence.by] * (
        SETTLED if sentence.section == DECISIONS or is_decision(sentence.text) or is_correction(sentence.text) else 1
    )
    weighed.weight = max(weighed.weight, weight)
    weighed.count += 1
    weighed.last = index
    # The latest sentence of those whose speaker counts most says what it is.
    if sentence.text and (rank := (weight, index)) > weighed.rank:
        weighed.rank, weighed.sentence = rank, sentence.text


def _machine_texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            yield message.text
        elif isinstance(message, AssistantMessage):
            yield from (call.arguments for call in reversed(message.calls))
