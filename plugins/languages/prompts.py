"""The texts of a language, as its file has them: whoever adds a file `xx.toml` with all of them has added the language."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent

CODES: tuple[str, ...] = tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))
"""The languages that there are."""


class FlushTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The flush before a compaction: who is asked, what for, and how to answer. `YYYY-MM-DD` becomes the day."""

    system: str
    prompt: str
    how: str


class SummaryTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A summary: who is asked; the question, what is added where an earlier summary stands first, the question about several
    summaries, and the one about a try that cannot be taken; what belongs below each heading, by how many identifiers are
    kept (`identifiers` or `few_identifiers`); and the rules. `{parts}`, `{empty}` and `{words}` are filled in."""

    system: str
    question: str
    earlier: str
    merging: str
    tried: str
    tried_name: str
    mending: str
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
    """Facts: how they are found in a turn (`{most}` is how many it may leave) and made into few, with what stands around
    the turn or the facts that are shown."""

    extraction: str
    person: str
    assistant: str
    question: str
    distillation: str
    kept: str
    new: str
    distill_question: str


class Language(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All texts of a language: the standing instructions with the day behind them (`{weekday}`, `{date}`, `{zone}`), what is
    said about a record that is shown as data, and those for each purpose."""

    instructions: str
    today: str
    record: str
    flush: FlushTexts
    summary: SummaryTexts
    facts: FactTexts


def known(code: str) -> str | None:
    """Return the one of `CODES` that a name such as `zh-CN` means; None for a language that there is not."""
    code = re.split("[-_]", code, maxsplit=1)[0].lower()
    return code if code in CODES else None


@cache
def language(code: str) -> Language:
    """Return the texts of a language; those in English where there are none."""
    file = FOLDER / f"{known(code) or 'en'}.toml"
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Language)
