"""The sentences of a conversation with their speakers and identifiers, without those that were corrected later.

And the ranking of these identifiers by importance. Pure. Tool results are left out: they are long and rarely matter later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import log2
from typing import Literal, TypeAlias

import msgspec

from plugins.api.compaction import CompactionInput
from plugins.policies.identifiers import identifiers
from plugins.policies.summary_sections import DECISIONS, PROGRESS, parse_sections
from plugins.support.fencing import harmless
from plugins.support.text.sentences import is_correction, is_decision, sentences
from sessions.events.messages import AssistantMessage, Message, UserMessage

Speaker: TypeAlias = Literal["summary", "person", "assistant"]

MAX_CHARACTERS = 40_000
"""Maximum characters read of a message: its beginning and its end."""

MAX_CORRECTIONS = 50
"""Maximum corrections considered, the latest first."""

MAX_CORRECTABLE = 4_000
"""Maximum sentences considered as corrected, the latest first."""

MIN_OVERLAP = 0.75
"""Minimum share of the words that a correction has in common with the sentence it corrects."""

LIST_PREFIX = "Also: "
"""Prefix of a line that only lists identifiers."""

SEPARATOR = " · "

_CODE = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_STOP_WORDS = re.compile(
    "the|and|for|not|but|now|are|was|that|this|with|from|has|have|der|die|das|und|ist|nicht|les|des|pas"
)


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


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a message or of the current summary.

    `at` is the index of the message, -1 for the summary; `section` the summary's section; `names` the identifiers in it.
    """

    text: str
    by: Speaker
    at: int
    section: str = ""
    names: tuple[str, ...] = ()


def collect_sentences(leaving: CompactionInput) -> list[Sentence]:
    """Return the sentences of the current summary and of the messages, oldest first, without those corrected later."""
    sentences_found = [*_of_summary(leaving.summary), *_of_messages(leaving.messages)]
    wrong = _corrected(sentences_found)
    return [sentence for index, sentence in enumerate(sentences_found) if index not in wrong]


def identifier_names(text: str) -> tuple[str, ...]:
    """Return the distinct identifiers of a text, in order."""
    return tuple(dict.fromkeys(each.text for each in identifiers(text)))


def _of_summary(summary: str) -> Iterator[Sentence]:
    for section, body in parse_sections(harmless(summary)).items():
        for line in filter(None, map(str.strip, body.splitlines())):
            text = line.removeprefix("- ").strip()
            if text.startswith(LIST_PREFIX):
                listed = text.removeprefix(LIST_PREFIX).split(SEPARATOR)
                yield from (
                    Sentence(text="", by="summary", at=-1, section=section, names=(each,)) for each in listed if each
                )
            elif text and not text.startswith("#"):
                names = () if section == PROGRESS else identifier_names(text)  # tool calls are not statements
                yield Sentence(text=text, by="summary", at=-1, section=section, names=names)


def _of_messages(messages: Sequence[Message]) -> Iterator[Sentence]:
    for at, message in enumerate(messages):
        if isinstance(message, UserMessage | AssistantMessage):
            by: Speaker = "person" if isinstance(message, UserMessage) else "assistant"
            for code, text in _blocks(harmless(_clip(message.text))):
                if code:
                    yield Sentence(text="", by=by, at=at, names=identifier_names(text))
                else:
                    yield from (Sentence(text=line, by=by, at=at, names=identifier_names(line)) for line in sentences(text))


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Split a text into (is_code, text) parts. Fenced code has identifiers but no sentences."""
    start = 0
    for block in _CODE.finditer(text):
        yield False, text[start : block.start()]
        yield True, block[0]
        start = block.end()
    yield False, text[start:]


def _clip(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS // 2]}\n{text[-MAX_CHARACTERS // 2 :]}"


def _corrected(sentences_found: Sequence[Sentence]) -> set[int]:
    """Return the indexes of sentences that a later one corrects.

    A correction is about the same subject with another identifier of the same kind. Sentences that only repeat the outdated
    identifier are included.
    """
    corrections = [index for index, each in enumerate(sentences_found) if each.names and is_correction(each.text)]
    words = {index: _words(each) for index, each in enumerate(sentences_found) if each.names}
    candidates, old = list(words)[-MAX_CORRECTABLE:], dict[str, int]()
    wrong: set[int] = set()
    for index in corrections[-MAX_CORRECTIONS:]:
        alike = {earlier: len(words[earlier] & words[index]) for earlier in candidates if earlier < index}
        replaced = {
            earlier: values
            for earlier, shared in alike.items()
            if shared >= MIN_OVERLAP * min(len(words[earlier]), len(words[index])) > 0
            and (values := _replaced(sentences_found[earlier], sentences_found[index]))
        }
        for earlier in _corrected_by(replaced, alike, sentences_found[index]):
            wrong.add(earlier)
            old |= dict.fromkeys(replaced[earlier], index)
    return wrong | set(_repeating(sentences_found, old))


def _corrected_by(replaced: dict[int, list[str]], alike: dict[int, int], correction: Sentence) -> list[int]:
    """Return the sentences that a correction refers to: those whose identifier it names, else the most similar."""
    if told := [earlier for earlier, values in replaced.items() if set(values) & set(correction.names)]:
        return told
    most = max((alike[earlier] for earlier in replaced), default=0)
    return [earlier for earlier in replaced if alike[earlier] == most]


def _repeating(sentences_found: Sequence[Sentence], old: dict[str, int]) -> Iterator[int]:
    """Yield the indexes of sentences before a correction that contain only identifiers it made obsolete."""
    for index, each in enumerate(sentences_found):
        if each.names and all(old.get(name, -1) > index for name in each.names):
            yield index


def _replaced(earlier: Sentence, later: Sentence) -> list[str]:
    """Return the identifiers of a sentence that a later one may replace by others of the same shape.

    Plain identifiers of code all have the same shape, so they are never treated as replaced values.
    """
    shapes = {_shape(name) for name in set(later.names).difference(earlier.names)} - {"a", "a_a"}
    return [name for name in earlier.names if _shape(name) in shapes]


def _shape(name: str) -> str:
    """Return the kind of an identifier: runs of letters and digits are normalised."""
    letters = re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", name.strip("_()")))
    return re.sub(r"a(?:_a)+", "a_a", letters)


def _words(sentence: Sentence) -> set[str]:
    """Return the words of a sentence without identifiers and stop words."""
    text = sentence.text
    for name in sentence.names:
        text = text.replace(name, " ")
    return {word for word in _WORDS.findall(text.casefold()) if not _STOP_WORDS.fullmatch(word)}


def by_speaker(sentences_found: Iterable[Sentence], by: Speaker) -> list[Sentence]:
    """Return the sentences of one speaker."""
    return [each for each in sentences_found if each.by == by]


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
