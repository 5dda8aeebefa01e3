"""Whether a text is the summary that was asked for. What is wrong with it is said in sentences that a model can mend it by.

Pure; the time grows with the texts and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from plugins.api.summarization import CompactionInput
from plugins.policies.identifiers import identifiers, is_named
from plugins.policies.summary_sections import SECTIONS, TURN, parsed
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.events.tokens import estimate

LAST_MESSAGES = 8
"""Messages at the end of what leaves, tools' results aside, whose identifiers a strict summary has to name."""

TOKENS_PER_IDENTIFIER = 40
"""For so many tokens that a summary may have, one identifier is demanded of it, at least four."""

MOST_ABSENT = 3
"""Of the sections so many may be added empty."""

FEW = 4
"""Of so many identifiers, or more, a summary has to name half by itself, or it says nothing exactly."""

MOST_ACCOUNTED = 200
"""Identifiers that an account of what was kept and lost names, the latest of each."""

MOST_FOUND = 5_000
"""After so many identifiers earlier ones are not looked for."""

READ = 20_000
"""Characters that are looked at of each end of what somebody said."""

ARGUMENTS = 400
"""Characters of a call's arguments that are looked at: behind them stands what is written into files."""

_EXCUSE = re.compile(
    r"\W*(?:error\b|sorry\b|i(?:'|\u2019)?m sorry|i am sorry|i apologi[sz]e|apologies|as an ai\b|unable to|failed to"
    r"|i (?:can(?:no|\W?)t|am unable|was unable|could not)\b"
    r"|(?:no |the )?summary (?:is |was )?(?:not available|unavailable|failed|could not)"
    r"|抱歉|对不起|很遗憾|无法|不能|总结失败"
    r"|entschuldigung|es tut mir leid|leider|(?:je suis )?désolée?\b|lo siento|no puedo)",
    re.IGNORECASE,
)
_OF_ITSELF = re.compile(r"summar|unavailable|\bhelp\b|总结|摘要|zusammenfass|résum|resum", re.IGNORECASE)
_WORDS = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_PARTS = re.compile(r"[:#()=,;\s]+")
_CERTAIN = re.compile(r"[\d/\\@_]")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}(?:[-./]\d{1,4})?(?:T[\d:.+Z-]+)?|\d{1,2}:\d{2}(?::\d{2})?Z?")


class CheckedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a summary. `faults` are sentences. The others can be mended without a model: the sections that are
    `absent`, the identifiers that are `missing` of so many `demanded`, and what the person asked last where that is
    `unasked`."""

    faults: tuple[str, ...] = ()
    demanded: int = 0
    absent: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unasked: str = ""

    @property
    def mendable(self) -> bool:
        """Whether it can be mended without a model and is worth it."""
        return not self.unmendable

    @property
    def unmendable(self) -> str:
        """Why it cannot be, or is not worth it; empty if it can."""
        if self.faults:
            return self.faults[0]
        if len(self.absent) > MOST_ABSENT:
            return f"{len(self.absent)} of its sections are missing."
        if self.demanded >= FEW and 2 * len(self.missing) > self.demanded:
            return f"It leaves out {len(self.missing)} of {self.demanded} identifiers: {', '.join(self.missing)}."
        return ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Everything that is wrong, as sentences."""
        absent = (f"These sections are missing: {', '.join(self.absent)}.",) if self.absent else ()
        missing = (f"These identifiers are missing: {', '.join(self.missing)}.",) if self.missing else ()
        unasked = (f"It does not say what the person asked last: {self.unasked[:300]!r}.",) if self.unasked else ()
        return (*self.faults, *absent, *missing, *unasked)


def check(summary: str, leaving: CompactionInput) -> CheckedSummary:
    """What is wrong with a summary of what leaves."""
    if is_excuse(summary):
        return CheckedSummary(faults=("It is empty, an error or an apology, and no summary.",))
    sections = parsed(summary)
    wanted = demanded(leaving) if leaving.identifier_policy == "strict" else []
    return CheckedSummary(
        demanded=len(wanted),
        faults=(*_of_size(summary, leaving), *_invented(summary, leaving)),
        absent=tuple(name for name in ((*SECTIONS, TURN) if leaving.began else SECTIONS) if name not in sections),
        missing=tuple(each for each in wanted if not is_named(each, summary)),
        unasked=_unasked(summary, leaving),
    )


def is_excuse(text: str) -> bool:
    """Whether a text says no more than that there is no summary. One that tells of errors that somebody met is none."""
    sections = parsed(text)
    said = [body for body in sections.values() if body] if sections else [text.strip()]
    if not any(said):
        return True
    excuses = all(_EXCUSE.match(body) and len(body) < 400 for body in said)
    # Below a heading "failed to deploy" is work to be done: there an excuse has to speak of the summary.
    return excuses and (not sections or all(map(_OF_ITSELF.search, said)))


def demanded(leaving: CompactionInput) -> list[str]:
    """The identifiers that a strict summary has to name, newest first: those of the last messages."""
    most = max(4, leaving.limit // TOKENS_PER_IDENTIFIER)
    found: dict[str, None] = {}
    for text in spoken_texts(leaving)[:LAST_MESSAGES]:
        found |= dict.fromkeys(each.text for each in identifiers(text) if each.kind == "exact")
    return list(found)[:most]


def accounted(summary: str, leaving: CompactionInput) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which identifiers of what leaves the summary names, and which it does not; latest first. Those that only tools said
    are not counted."""
    found: dict[str, None] = {}
    for text in (*spoken_texts(leaving), leaving.summary):
        if len(found) < MOST_FOUND:
            found |= dict.fromkeys(each.text for each in identifiers(text) if each.kind == "exact")
    kept = [each for each in found if is_named(each, summary)]
    named = set(kept)
    lost = [each for each in found if each not in named]
    return tuple(kept[:MOST_ACCOUNTED]), tuple(lost[:MOST_ACCOUNTED])


def last_ask(messages: Iterable[Message]) -> str:
    """What a person wrote last; "" if nobody did."""
    return next((m.text for m in reversed(tuple(messages)) if isinstance(m, UserMessage) and m.text.strip()), "").strip()


def _of_size(summary: str, leaving: CompactionInput) -> Iterator[str]:
    tokens = estimate(summary)
    if tokens > leaving.limit:
        yield f"It has about {tokens} tokens; it may have {leaving.limit}."
    if tokens >= estimate(leaving.summary) + sum(
        estimate(text) for message in leaving.messages for text in texts_of(message)
    ):
        yield "It is longer than what it stands for."


def _invented(summary: str, leaving: CompactionInput) -> Iterator[str]:
    """A sentence where the summary names what occurs nowhere. Spelt with other capitals, or with a line number behind it, it
    is still the same; dates may be written in another way."""
    sources = [leaving.summary, leaving.focus, leaving.day]
    sources += [text for message in (*leaving.messages, *leaving.kept) for text in texts_of(message)]
    whole = "\n".join(sources).casefold()
    invented = {
        each.text: None
        for each in identifiers(summary)
        if each.kind == "exact" and _CERTAIN.search(each.text) and not _occurs(each.text.casefold(), whole)
    }
    if invented:
        yield f"These identifiers occur nowhere in the record: {', '.join(invented)}."


def _occurs(identifier: str, whole: str) -> bool:
    if identifier in whole or _DATE.fullmatch(identifier):
        return True
    parts = [part for part in _PARTS.split(identifier) if part]
    return len(parts) > 1 and all(part in whole for part in parts)


def _unasked(summary: str, leaving: CompactionInput) -> str:
    """The last ask, if it leaves and the summary holds too few of its words."""
    if any(isinstance(message, UserMessage) for message in leaving.kept):
        return ""
    ask = last_ask(leaving.messages)
    words = {word[:6] for word in _WORDS.findall(ask.casefold()[:2_000])}
    told = summary.casefold()
    return "" if sum(word in told for word in words) * 4 >= len(words) else ask


def texts_of(message: Message) -> Iterator[str]:
    """Every text of a message, the arguments of its calls among them."""
    yield message.text
    if isinstance(message, AssistantMessage):
        yield from (call.arguments for call in message.calls)


def spoken_texts(leaving: CompactionInput) -> list[str]:
    """What persons and the assistant said in the messages that leave, and the beginning of what tools were called with, one
    text for each message, the latest first. Of a very long one head and tail."""
    spoken = [list(texts_of(each)) for each in reversed(leaving.messages) if not isinstance(each, ToolMessage)]
    return ["\n".join([_ends(text), *(call[:ARGUMENTS] for call in calls)]) for text, *calls in spoken]


def _ends(text: str) -> str:
    return text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"
