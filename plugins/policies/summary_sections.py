"""The form of a summary: the same sections each time, as Markdown headings in English, whatever the language below them.

A summary that a model wrote is read leniently: deeper headings, bold ones, other letters' case. Pure.
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
"""The sections in their order. `Progress` has the parts `STATES`."""

TURN = "The Turn So Far"
"""A section of its own, last, where the beginning of a turn leaves that goes on."""

STATES = ("Done", "In Progress", "Blocked")

EMPTY = "(none)"
"""What stands below a heading where there is nothing to say."""

_HEADING = re.compile(r"^[ \t]{0,3}(?:#{1,6}[ \t]*+|\*\*)([^\n#*]{1,80}+)[#*:： \t]*+$", re.MULTILINE)
_NAMES = {name.casefold(): name for name in (*SECTIONS, TURN)} | {"constraints and preferences": CONSTRAINTS}


def written(sections: Mapping[str, str]) -> str:
    """The summary with these texts below its headings, all headings in their order; `TURN` only where it has a text."""
    names = (*SECTIONS, TURN) if sections.get(TURN) else SECTIONS
    return "\n\n".join(f"## {name}\n{sections.get(name, '').strip() or EMPTY}" for name in names)


def parsed(summary: str) -> dict[str, str]:
    """What stands below each heading that the summary has, stripped; `EMPTY` is nothing. Text before the first is left out,
    and one that comes twice is joined."""
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
