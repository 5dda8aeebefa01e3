"""Which identifiers of what was said matter most. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import msgspec

from plugins.policies.extract_sentences import Sentence, Speaker
from plugins.policies.identifiers import identifiers
from plugins.policies.summary_sections import DECISIONS
from plugins.support.text.sentences import is_correction, is_decision
from sessions.events.messages import AssistantMessage, Message

WEIGHTS: dict[Speaker, float] = {"person": 4.0, "summary": 3.0, "assistant": 2.0}
"""What it counts that a person said it, that an earlier summary kept it, that the assistant said it."""

SETTLED = 1.5
"""What it counts that a decision or a correction names it: without its sentence it would mean nothing."""

BARE = 0.5
"""What it counts that an earlier summary only listed it."""

ARGUMENTS = 400
"""Characters of each of a call's arguments that are read: behind them stands what is written into files."""

LONGEST = 200
"""Characters of an identifier that an extract lists; addresses with whole forms in them are longer."""


class IdentifierMention(msgspec.Struct, frozen=True, kw_only=True):
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


def mentions(told: Sequence[Sentence]) -> list[IdentifierMention]:
    """The identifiers of what was said, those that matter most first: said by a person, often, late."""
    weighed: dict[str, _Weighed] = {}
    for index, sentence in enumerate(told):
        for name in sentence.names:
            if len(name) <= LONGEST:
                _weigh(weighed.setdefault(name, _Weighed()), sentence, index)
    found = [
        IdentifierMention(
            name=name, score=each.weight * (1 + log2(each.count)) * (1 + each.last / len(told)), sentence=each.sentence
        )
        for name, each in weighed.items()
    ]
    return sorted(found, key=lambda mention: -mention.score)


def given(messages: Sequence[Message]) -> list[str]:
    """The identifiers that tools were called with, the latest first."""
    found: dict[str, None] = {}
    for message in reversed(messages):
        for call in reversed(message.calls) if isinstance(message, AssistantMessage) else ():
            names = (each for text in _values(call.arguments) for each in identifiers(text[:ARGUMENTS]))
            found |= dict.fromkeys(each.text for each in names if each.kind == "exact" and len(each.text) <= LONGEST)
    return list(found)


def _values(arguments: str) -> list[str]:
    """The texts in a call's arguments as they were meant, without JSON's escapes; what is no JSON as it is."""
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return [arguments]
    return [value for value in decoded.values() if isinstance(value, str)] if isinstance(decoded, dict) else [arguments]


def _weigh(weighed: _Weighed, sentence: Sentence, index: int) -> None:
    settled = sentence.section == DECISIONS or is_decision(sentence.text) or is_correction(sentence.text)
    weight = WEIGHTS[sentence.by] * (SETTLED if settled else 1) * (1 if sentence.text else BARE)
    weighed.weight = max(weighed.weight, weight)
    weighed.count += 1
    weighed.last = index
    # The latest sentence of those whose speaker counts most says what it is.
    if sentence.text and (rank := (weight, index)) > weighed.rank:
        weighed.rank, weighed.sentence = rank, sentence.text
