"""Validation of a summary. Faults are sentences that a model can use to repair it.

Pure. The time is linear in the length of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from plugins.api.compaction import CompactionInput
from plugins.policies.identifiers import identifiers, is_named
from plugins.policies.summary_sections import SECTIONS, TURN, parse_sections
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.events.tokens import estimate

RECENT_MESSAGES = 8
"""Number of the last messages, without tool results, whose identifiers a strict summary must contain."""

TOKENS_PER_IDENTIFIER = 40
"""One identifier is required per this many tokens of the limit, and at least four."""

MAX_MISSING_SECTIONS = 3
"""Maximum missing sections that are added empty."""

MIN_REQUIRED = 4
"""From this many required identifiers on, a summary must contain at least half of them."""

MAX_REPORTED = 200
"""Maximum identifiers reported as kept, and as lost, the latest first."""

MAX_FOUND = 5_000
"""Number of identifiers after which earlier messages are not searched."""

EDGE_CHARACTERS = 20_000
"""Characters read at the beginning and at the end of a message."""

ARGUMENT_CHARACTERS = 400
"""Characters read of a call's arguments; what follows is usually file content."""

_REFUSAL = re.compile(
    r"\W*(?:error\b|sorry\b|i(?:'|\u2019)?m sorry|i am sorry|i apologi[sz]e|apologies|as an ai\b|unable to|failed to"
    r"|i (?:can(?:no|\W?)t|am unable|was unable|could not)\b"
    r"|(?:no |the )?summary (?:is |was )?(?:not available|unavailable|failed|could not)"
    r"|抱歉|对不起|很遗憾|无法|不能|总结失败"
    r"|entschuldigung|es tut mir leid|leider|(?:je suis )?désolée?\b|lo siento|no puedo)",
    re.IGNORECASE,
)
_MENTIONS_SUMMARY = re.compile(r"summar|unavailable|\bhelp\b|总结|摘要|zusammenfass|résum|resum", re.IGNORECASE)
_WORDS = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_PARTS = re.compile(r"[:#()=,;\s]+")
_CERTAIN = re.compile(r"[\d/\\@_]")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}(?:[-./]\d{1,4})?(?:T[\d:.+Z-]+)?|\d{1,2}:\d{2}(?::\d{2})?Z?")


class CheckedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a summary.

    `faults` are sentences about what only a model can repair. The other fields can be repaired without one: missing
    sections, missing identifiers of those required, and the person's last question if it is omitted.
    """

    faults: tuple[str, ...] = ()
    required: int = 0
    missing_sections: tuple[str, ...] = ()
    missing_identifiers: tuple[str, ...] = ()
    omitted_question: str = ""

    @property
    def repairable(self) -> bool:
        """True if the summary can be repaired without a model."""
        return not self.unrepairable_reason

    @property
    def unrepairable_reason(self) -> str:
        """The reason why the summary cannot be repaired without a model, or ""."""
        if self.faults:
            return self.faults[0]
        if len(self.missing_sections) > MAX_MISSING_SECTIONS:
            return f"{len(self.missing_sections)} of its sections are missing."
        if self.required >= MIN_REQUIRED and 2 * len(self.missing_identifiers) > self.required:
            named = ", ".join(self.missing_identifiers)
            return f"It leaves out {len(self.missing_identifiers)} of {self.required} identifiers: {named}."
        return ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All faults as sentences."""
        found = [*self.faults]
        if self.missing_sections:
            found.append(f"These sections are missing: {', '.join(self.missing_sections)}.")
        if self.missing_identifiers:
            found.append(f"These identifiers are missing: {', '.join(self.missing_identifiers)}.")
        if self.omitted_question:
            found.append(f"It omits the last question: {self.omitted_question[:300]!r}.")
        return tuple(found)


def check(summary: str, leaving: CompactionInput) -> CheckedSummary:
    """Return the faults of a summary of the messages that leave."""
    if is_refusal(summary):
        return CheckedSummary(faults=("The answer is empty, an error or an apology instead of a summary.",))
    sections = parse_sections(summary)
    wanted = required_identifiers(leaving) if leaving.identifier_policy == "strict" else []
    return CheckedSummary(
        required=len(wanted),
        faults=(*_size_faults(summary, leaving), *_invented_identifiers(summary, leaving)),
        missing_sections=tuple(
            name for name in ((*SECTIONS, TURN) if leaving.splits_turn else SECTIONS) if name not in sections
        ),
        missing_identifiers=tuple(each for each in wanted if not is_named(each, summary)),
        omitted_question=_omitted_question(summary, leaving),
    )


def is_refusal(text: str) -> bool:
    """Return True if a text only says that there is no summary. A summary that reports errors is not a refusal."""
    sections = parse_sections(text)
    said = [body for body in sections.values() if body] if sections else [text.strip()]
    if not any(said):
        return True
    excuses = all(_REFUSAL.match(body) and len(body) < 400 for body in said)
    # Below a heading "failed to deploy" is work to do: there a refusal has to mention the summary.
    return excuses and (not sections or all(map(_MENTIONS_SUMMARY.search, said)))


def required_identifiers(leaving: CompactionInput) -> list[str]:
    """Return the identifiers that a strict summary must contain, the latest first."""
    most = max(4, leaving.limit // TOKENS_PER_IDENTIFIER)
    found: dict[str, None] = {}
    for text in spoken_texts(leaving)[:RECENT_MESSAGES]:
        found |= dict.fromkeys(each.text for each in identifiers(text) if each.kind == "exact")
    return list(found)[:most]


def kept_and_lost(summary: str, leaving: CompactionInput) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the identifiers that the summary contains and those it lost, the latest first.

    Identifiers that occur only in tool results are not counted.
    """
    found: dict[str, None] = {}
    for text in (*spoken_texts(leaving), leaving.summary):
        if len(found) < MAX_FOUND:
            found |= dict.fromkeys(each.text for each in identifiers(text) if each.kind == "exact")
    kept = [each for each in found if is_named(each, summary)]
    named = set(kept)
    lost = [each for each in found if each not in named]
    return tuple(kept[:MAX_REPORTED]), tuple(lost[:MAX_REPORTED])


def last_question(messages: Iterable[Message]) -> str:
    """Return the last message of a person, "" for none."""
    return next((m.text for m in reversed(tuple(messages)) if isinstance(m, UserMessage) and m.text.strip()), "").strip()


def _size_faults(summary: str, leaving: CompactionInput) -> Iterator[str]:
    tokens = estimate(summary)
    if tokens > leaving.limit:
        yield f"It has about {tokens} tokens; the limit is {leaving.limit}."
    if tokens >= estimate(leaving.summary) + sum(
        estimate(text) for message in leaving.messages for text in texts_of(message)
    ):
        yield "It is longer than the text it replaces."


def _invented_identifiers(summary: str, leaving: CompactionInput) -> Iterator[str]:
    """Yield a sentence about identifiers that occur nowhere in the messages.

    Differences in case, an added line number and other formats of dates are accepted.
    """
    sources = [leaving.summary, leaving.focus, leaving.day]
    sources += [text for message in (*leaving.messages, *leaving.kept) for text in texts_of(message)]
    whole = "\n".join(sources).casefold()
    invented = {
        each.text: None
        for each in identifiers(summary)
        if each.kind == "exact" and _CERTAIN.search(each.text) and not _occurs(each.text.casefold(), whole)
    }
    if invented:
        yield f"These identifiers do not occur in the record: {', '.join(invented)}."


def _occurs(identifier: str, whole: str) -> bool:
    if identifier in whole or _DATE.fullmatch(identifier):
        return True
    parts = [part for part in _PARTS.split(identifier) if part]
    return len(parts) > 1 and all(part in whole for part in parts)


def _omitted_question(summary: str, leaving: CompactionInput) -> str:
    """Return the last question if it leaves and the summary contains too few of its words, else ""."""
    if any(isinstance(message, UserMessage) for message in leaving.kept):
        return ""
    ask = last_question(leaving.messages)
    words = {word[:6] for word in _WORDS.findall(ask.casefold()[:2_000])}
    told = summary.casefold()
    return "" if sum(word in told for word in words) * 4 >= len(words) else ask


def texts_of(message: Message) -> Iterator[str]:
    """Yield every text of a message, including the arguments of its calls."""
    yield message.text
    if isinstance(message, AssistantMessage):
        yield from (call.arguments for call in message.calls)


def spoken_texts(leaving: CompactionInput) -> list[str]:
    """Return one text per message of people and the assistant, with the start of the calls' arguments; the latest first."""
    spoken = [list(texts_of(each)) for each in reversed(leaving.messages) if not isinstance(each, ToolMessage)]
    return ["\n".join([_ends(text), *(call[:ARGUMENT_CHARACTERS] for call in calls)]) for text, *calls in spoken]


def _ends(text: str) -> str:
    return text if len(text) <= 2 * EDGE_CHARACTERS else f"{text[:EDGE_CHARACTERS]}\n{text[-EDGE_CHARACTERS:]}"
