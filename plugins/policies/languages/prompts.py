"""Loading the prompts of a language. A complete file `xx.toml` adds a language."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent

CODES: tuple[str, ...] = tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))
"""The codes of the available languages."""


class FlushTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prompts of the memory flush. `YYYY-MM-DD` is replaced by the date."""

    system: str
    prompt: str
    how: str


class SummaryTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prompts for summaries: the system prompt; the question, what is added to it if the record begins with an earlier
    summary, the question about several partial summaries, and the request to correct an attempt; what belongs below each
    heading (`identifiers` or `few_identifiers` by policy); the rules. `{parts}`, `{empty}` and `{words}` are replaced."""

    system: str
    question: str
    earlier: str
    merging: str
    attempt: str
    attempt_name: str
    repair: str
    headings: str
    goals: str
    constraints: str
    progress: str
    decisions: str
    next: str
    context: str
    identifiers: str
    few_identifiers: str
    turn: str
    rules: str
    focus: str
    wish: str


class FactTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prompts for extracting facts from a turn (`{most}` is the maximum number) and for distilling them."""

    extraction: str
    person: str
    assistant: str
    question: str
    distillation: str
    kept: str
    new: str
    distill_question: str


class Language(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All texts of a language."""

    instructions: str
    today: str
    record: str
    title: str
    flush: FlushTexts
    summary: SummaryTexts
    facts: FactTexts


def known(code: str) -> str | None:
    """Return the code in `CODES` for a name such as `zh-CN`, or None if the language is not available."""
    code = re.split("[-_]", code, maxsplit=1)[0].lower()
    return code if code in CODES else None


@cache
def language(code: str) -> Language:
    """Return the texts of a language, or the English ones if it is not available."""
    file = FOLDER / f"{known(code) or 'en'}.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Language)
