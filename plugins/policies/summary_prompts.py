"""The prompts for writing, merging and repairing a summary. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.api.compaction import CompactionInput
from plugins.languages.prompts import SummaryTexts, language
from plugins.policies.summary_sections import (
    CONSTRAINTS,
    CONTEXT,
    DECISIONS,
    EMPTY,
    GOALS,
    IDENTIFIERS,
    NEXT,
    PROGRESS,
    STATES,
    TURN,
)
from plugins.support.fencing import quoted

MAX_FOCUS_CHARACTERS = 800
"""Maximum characters used of a person's focus for a summary."""


def system_prompt(leaving: CompactionInput) -> str:
    """Return the system prompt."""
    return _texts(leaving).system


def summary_prompt(leaving: CompactionInput) -> str:
    """Return the prompt that follows the record of the messages."""
    texts = _texts(leaving)
    asked = f"{texts.question} {texts.earlier}" if leaving.summary.strip() else texts.question
    return f"{asked}\n\n{_form(leaving)}"


def merge_prompt(leaving: CompactionInput) -> str:
    """Return the prompt that follows the record of several summaries."""
    return f"{_texts(leaving).merging}\n\n{_form(leaving)}"


def repair_prompt(leaving: CompactionInput, asked: str, summary: str, faults: Sequence[str]) -> str:
    """Return the prompt for repairing the faulty summary that answered the prompt `asked`."""
    texts = _texts(leaving)
    told = "\n".join(f"- {fault}" for fault in faults)
    return f"{asked}\n\n{texts.tried}\n\n{quoted(summary, texts.tried_name)}\n\n{texts.mending}\n{told}"


def _texts(leaving: CompactionInput) -> SummaryTexts:
    return language(leaving.language).summary


def _form(leaving: CompactionInput) -> str:
    texts = _texts(leaving)
    form = {
        GOALS: texts.goals,
        CONSTRAINTS: texts.constraints,
        PROGRESS: texts.progress.replace("{parts}", ", ".join(f"### {state}" for state in STATES)),
        DECISIONS: texts.decisions,
        NEXT: texts.next,
        CONTEXT: texts.context,
        IDENTIFIERS: _identifiers(leaving, texts),
        **({TURN: texts.turn} if leaving.began else {}),
    }
    headings = "\n".join(f"## {name}\n({what})" for name, what in form.items())
    parts = [f"{texts.headings}\n\n{headings}", _rules(leaving, texts), _focus(leaving, texts)]
    return "\n\n".join(filter(None, parts))


def _rules(leaving: CompactionInput, texts: SummaryTexts) -> str:
    words = max(60, leaving.limit * 6 // 10)
    return texts.rules.replace("{empty}", EMPTY).replace("{words}", str(words))


def _identifiers(leaving: CompactionInput, texts: SummaryTexts) -> str:
    if leaving.identifier_policy == "custom" and leaving.identifier_instructions.strip():
        return leaving.identifier_instructions.strip()
    return texts.few_identifiers if leaving.identifier_policy == "off" else texts.identifiers


def _focus(leaving: CompactionInput, texts: SummaryTexts) -> str:
    focus = leaving.focus.strip()[:MAX_FOCUS_CHARACTERS]
    return f"{texts.focus}\n\n{quoted(focus, texts.wish)}" if focus else ""
