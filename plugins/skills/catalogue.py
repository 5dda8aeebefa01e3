"""The catalogue of skills in a model's instructions: their names and descriptions, as many as fit the budget.

Pure functions of the skills that were found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from plugins.skills.admissions import Admission
from plugins.support.fencing import harmless
from sessions.events.tokens import estimate

State: TypeAlias = Literal["admitted", "new", "changed", "refused"]
"""`new` and `changed` skills wait for a person; `refused` ones cannot be used."""

NAMED = 20
"""Maximum names in one sentence."""

INTRODUCTION = (
    "Skills are instructions for particular tasks. If one of these descriptions matches the task at hand, load that skill"
    " with the tool `skill` before you begin."
)
"""The text before the catalogue."""


class FoundSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with a skill.

    Attributes:
        name: The name of the skill, or of its folder if it was never admitted.
        folder: The folder.
        place: The folder as people are shown it: relative to the workspace if it lies there.
        state: Whether it can be used.
        reason: Why it is refused, as a sentence.
        admission: The admission of an admitted skill.
    """

    name: str
    folder: str
    place: str
    state: State
    reason: str = ""
    admission: Admission | None = None

    @property
    def in_workspace(self) -> bool:
        """True if the skill lies in the workspace."""
        return self.place != self.folder


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The text for the instructions, and the names of the skills that did not fit."""

    text: str = ""
    left_out: tuple[str, ...] = ()


def catalogue_of(skills: Sequence[FoundSkill], budget: int, *, pinned: Sequence[str], used: Mapping[str, str]) -> Catalogue:
    """Return the catalogue of the admitted skills.

    The order of preference is: pinned, recently used, of the workspace, the rest. The text is in the order of the names, so
    that it changes only with its content.

    Args:
        skills: The skills that were found.
        budget: The maximum size in tokens.
        pinned: The names of pinned skills.
        used: When each skill was last used (RFC 3339), by name.
    """
    admitted = {skill.name: skill for skill in skills if skill.admission is not None}
    if not admitted:
        return Catalogue()
    lines = {name: _line(name, skill.admission) for name, skill in admitted.items() if skill.admission is not None}
    names = sorted(admitted, key=lambda name: (not admitted[name].in_workspace, name))
    names.sort(key=lambda name: used.get(name, ""), reverse=True)
    order = [*(name for name in dict.fromkeys(pinned) if name in admitted), *names]
    room = budget - estimate(_text(["…"], len(admitted)))
    chosen = set[str]()
    for name in dict.fromkeys(order):
        if (size := estimate(lines[name]) + 1) <= room:
            chosen.add(name)
            room -= size
    left_out = tuple(sorted(admitted.keys() - chosen))
    text = _text([lines[name] for name in sorted(chosen)], len(left_out)) if budget else ""
    return Catalogue(text=text, left_out=left_out)


def _line(name: str, admission: Admission) -> str:
    return f"- {name}: {harmless(admission.description)}"


def _text(lines: Sequence[str], left_out: int) -> str:
    if not lines:
        return "There are skills, instructions for particular tasks: the tool `find_skill` finds them."
    more = f" The tool `find_skill` finds {left_out:,} more." if left_out else ""
    return "\n".join([f"{INTRODUCTION}{more}", "", *lines])


def listed(names: Sequence[str]) -> str:
    """Return names as part of a sentence."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def problems_of(skills: Sequence[FoundSkill], left_out: Sequence[str], budget: int) -> list[str]:
    """Return what a person should know about the skills, as sentences."""
    new = [skill.name for skill in skills if skill.state == "new"]
    found = [
        f"The skill {skill.name!r} has changed since it was admitted and is not used: `/skills show {skill.name}` shows the"
        " changes and how to admit them."
        for skill in skills
        if skill.state == "changed"
    ]
    if new:
        found.append(f"These skills are not used until you admit them (`/skills show NAME`): {listed(new)}.")
    found += [f"The skill in {skill.place} is not used. {skill.reason}" for skill in skills if skill.state == "refused"]
    if left_out:
        found.append(
            f"The catalogue of skills has room for {budget:,} tokens (skills.budget_tokens, and 2 % of the window). These"
            f" are found by a search only; skills.pinned puts others first: {listed(left_out)}."
        )
    return found
