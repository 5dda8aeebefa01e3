"""Extraction of facts from a turn: prompts and parsing of the answers. Pure."""

from __future__ import annotations

import re

import msgspec

from plugins.api.fact_values import FactDraft, InvalidFact
from plugins.facts.ended_turns import TurnText
from plugins.facts.model_answers import parse_draft, parse_rows
from plugins.policies.languages.prompts import FactTexts
from plugins.support.fencing import harmless, mark_for
from plugins.support.text.trivial_queries import is_small_talk
from sessions.state.truncation import head_and_tail

MAX_MESSAGE_BYTES, MAX_ANSWER_BYTES = 6000, 3000
"""Maximum bytes of the person's messages, and of the answer, that are shown to the model."""

MOST_TOKENS = 3750
"""Maximum estimated tokens of a turn of that size."""

SHORTEST = 8
"""Minimum characters of a message that may contain a fact."""

ANSWER = 600
"""Maximum tokens of an answer."""

LONGEST_LINE = 500
"""Maximum characters of a line that is checked for a stack trace."""

_TRACE = re.compile(
    r"Traceback \(most recent call last\)|\s+at [\w.$<>]+\(.*\)$|\s*File \".*\", line \d+|[\w.]*(?:Error|Exception)\b.*:"
)


class ExtractionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an answer, and why it is unusable, empty if it is usable."""

    drafts: tuple[FactDraft, ...] = ()
    wrong: str = ""


def may_contain_facts(turn: TurnText) -> bool:
    """Return False for greetings, commands and pasted errors, about which no model needs to be asked."""
    text = turn.asked.strip()
    if not turn.replied or len(text) < SHORTEST or text.startswith("/") or is_small_talk(text):
        return False
    return len(_without_traceback(text)) >= SHORTEST


def system(language: FactTexts, most: int) -> str:
    """Return the system prompt."""
    return language.extraction.replace("{most}", str(most))


def share_of(room: int | None) -> float:
    """Return the share of the longest turn that fits into `room` tokens, at least a twentieth."""
    return 1.0 if room is None else min(1.0, max(0.05, room / MOST_TOKENS))


def request(turn: TurnText, language: FactTexts, share: float = 1.0) -> str:
    """Build the prompt: the turn, each part truncated to this share of its maximum, and the question."""
    asked = harmless(head_and_tail(_without_traceback(turn.asked), int(share * MAX_MESSAGE_BYTES)))
    answered = harmless(head_and_tail(_without_traceback(turn.answered), int(share * MAX_ANSWER_BYTES)))
    mark = mark_for(asked + answered)
    lines = [f"[{mark}] {language.person}:", asked, f"[{mark}] {language.assistant}:", answered, f"[{mark}] end"]
    return "\n".join([*lines, "", language.question])


def parse_extraction(answer: str, most: int) -> ExtractionResult:
    """Parse the facts of an answer, at most `most`, the most important first. Invalid facts are dropped."""
    rows = parse_rows(answer)
    if rows is None:
        return ExtractionResult(wrong="The answer was not the requested JSON.")
    drafts: list[FactDraft] = []
    refused = ""
    for row in rows:
        try:
            drafts.append(_parse_row(row))
        except InvalidFact as error:
            refused = refused or str(error)
    unique = {each.content.casefold(): each for each in drafts}
    best = sorted(unique.values(), key=lambda each: -each.importance)[:most]
    return ExtractionResult(drafts=tuple(best), wrong="" if best or not rows else refused)


def _parse_row(row: object) -> FactDraft:
    found = parse_draft(row)
    if is_small_talk(found.content) or _is_traceback_line(found.content):
        raise InvalidFact("A greeting or an error message is not a fact.")
    return found


def _without_traceback(text: str) -> str:
    """Return the text without the lines of stack traces."""
    return "\n".join(line for line in text.split("\n") if not _is_traceback_line(line)).strip()


def _is_traceback_line(line: str) -> bool:
    return len(line) <= LONGEST_LINE and _TRACE.match(line) is not None
