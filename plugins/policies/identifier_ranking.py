"""Ranking of the identifiers in a conversation by importance. Pure."""

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
"""Weight of an identifier by who mentioned it."""

DECISION_FACTOR = 1.5
"""Factor for identifiers in decisions and corrections, which would mean nothing without them."""

LISTED_FACTOR = 0.5
"""Factor for identifiers that an earlier summary only listed."""

MAX_ARGUMENT_CHARACTERS = 400
"""Maximum characters read of each argument of a call; what follows is usually file content."""

MAX_IDENTIFIER_CHARACTERS = 200
"""Maximum characters of an identifier that is listed, which leaves out very long URLs."""


class IdentifierMention(msgspec.Struct, frozen=True, kw_only=True):
    """An identifier with its score and the sentence that explains it best, "" for none."""

    name: str
    score: float
    sentence: str


class _Accumulated(msgspec.Struct):
    """The mentions of an identifier so far."""

    weight: float = 0.0
    count: int = 0
    last: int = 0
    sentence: str = ""
    rank: tuple[float, int] = (0.0, -1)


def rank_identifiers(sentences: Sequence[Sentence]) -> list[IdentifierMention]:
    """Return the identifiers of the sentences, the most important first: mentioned by people, often and late."""
    accumulated: dict[str, _Accumulated] = {}
    for index, sentence in enumerate(sentences):
        for name in sentence.names:
            if len(name) <= MAX_IDENTIFIER_CHARACTERS:
                _accumulate(accumulated.setdefault(name, _Accumulated()), sentence, index)
    found = [
        IdentifierMention(
            name=name, score=each.weight * (1 + log2(each.count)) * (1 + each.last / len(sentences)), sentence=each.sentence
        )
        for name, each in accumulated.items()
    ]
    return sorted(found, key=lambda mention: -mention.score)


def identifiers_in_calls(messages: Sequence[Message]) -> list[str]:
    """Return the identifiers in the arguments of tool calls, the latest first."""
    found: dict[str, None] = {}
    for message in reversed(messages):
        for call in reversed(message.calls) if isinstance(message, AssistantMessage) else ():
            names = (each for text in _values(call.arguments) for each in identifiers(text[:MAX_ARGUMENT_CHARACTERS]))
            found |= dict.fromkeys(
                each.text for each in names if each.kind == "exact" and len(each.text) <= MAX_IDENTIFIER_CHARACTERS
            )
    return list(found)


def _values(arguments: str) -> list[str]:
    """Return the strings in a call's JSON arguments, or the arguments themselves if they are not a JSON object."""
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return [arguments]
    return [value for value in decoded.values() if isinstance(value, str)] if isinstance(decoded, dict) else [arguments]


def _accumulate(accumulated: _Accumulated, sentence: Sentence, index: int) -> None:
    settled = sentence.section == DECISIONS or is_decision(sentence.text) or is_correction(sentence.text)
    weight = WEIGHTS[sentence.by] * (DECISION_FACTOR if settled else 1) * (1 if sentence.text else LISTED_FACTOR)
    accumulated.weight = max(accumulated.weight, weight)
    accumulated.count += 1
    accumulated.last = index
    # Prefer the latest sentence among those with the highest weight.
    if sentence.text and (rank := (weight, index)) > accumulated.rank:
        accumulated.rank, accumulated.sentence = rank, sentence.text
