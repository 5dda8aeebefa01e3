"""The sections of a summary, with English Markdown headings whatever the language of the text.

Summaries written by a model are parsed leniently: deeper or bold headings and other case are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

GOALS = "Goals"
CONSTRAINTS = "Constraints & Preferences"
PROGRESS = "Progress"
DECISIONS = "Key Decisions"
NEXT = "Next Steps"
CONTEXT = "Key Context"
IDENTIFIERS = "Exact Identifiers"

SECTIONS = (GOALS, CONSTRAINTS, PROGRESS, DECISIONS, NEXT, CONTEXT, IDENTIFIERS)
"""The sections in order. `Progress` has the subsections `STATES`."""

TURN = "The Turn So Far"
"""An additional last section, if the compaction splits a turn."""

STATES = ("Done", "In Progress", "Blocked")

EMPTY = "(none)"
"""Text below a heading with no content."""

_HEADING = re.compile(r"^[ \t]{0,3}(?:#{1,6}[ \t]*+|\*\*)([^\n#*]{1,80}+)[#*:： \t]*+$", re.MULTILINE)
_NAMES = {name.casefold(): name for name in (*SECTIONS, TURN)} | {"constraints and preferences": CONSTRAINTS}


def format_sections(sections: Mapping[str, str]) -> str:
    """Format sections as Markdown, with all headings in order; `TURN` only if it has text."""
    names = (*SECTIONS, TURN) if sections.get(TURN) else SECTIONS
    return "\n\n".join(f"## {name}\n{sections.get(name, '').strip() or EMPTY}" for name in names)


def parse_sections(summary: str) -> dict[str, str]:
    """Return the text below each known heading, stripped; `EMPTY` counts as "".

    Text before the first heading is ignored, and repeated sections are joined.
    """
    found: dict[str, str] = {}
    name, start = "", 0
    for heading in [*_HEADING.finditer(summary), None]:
        known = _NAMES.get(heading[1].strip(" \t:：").casefold()) if heading else None
        if heading is not None and known is None:
            continue  # a part of the section, such as Done
        _add(found, name, summary[start : heading.start() if heading else len(summary)])
        if heading is not None and known is not None:
            name, start = known, heading.end()
    return found


def _add(found: dict[str, str], name: str, text: str) -> None:
    text = text.strip()
    if name:
        text = "" if text == EMPTY else text
        found[name] = f"{found[name]}\n{text}".strip() if name in found else text
