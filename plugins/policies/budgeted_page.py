"""A page of a summary that fills up line by line, within so many tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from plugins.policies.extract_sentences import ALSO, SEPARATOR
from plugins.policies.identifier_ranking import IdentifierMention
from plugins.policies.identifiers import is_named
from plugins.policies.summary_sections import IDENTIFIERS, PROGRESS, SECTIONS, TURN, written
from plugins.support.text.sentences import clipped_around
from sessions.events.tokens import estimate

NAME_CHARACTERS = 160
"""Characters of the sentence that is kept around an identifier."""


class Line(msgspec.Struct, frozen=True):
    """A line of a section, and where it stands in it: by message, then within that."""

    text: str
    at: int
    within: int = 0


class Page:
    """The lines that were taken, as many as there is room for; `room` is in estimated tokens."""

    def __init__(self, limit: int) -> None:
        self.room = self._limit = limit
        self._lines: dict[str, list[Line]] = {}
        self._taken: set[str] = set()
        self._held = ""

    def hold(self, text: str) -> None:
        """Leave room for a text that stands beside the lines; what it names need not be named again."""
        self.room -= estimate(text)
        self._held = text

    def fill(self, section: str, lines: Iterable[Line], share: int) -> None:
        """Take lines, the first ones first, until the share of the room is used."""
        share = min(share, self.room)
        for line in lines:
            if line.text in self._taken:
                continue
            cost = _cost(line.text) + (0 if section in self._lines else _cost(f"## {section}\n"))
            if cost <= share:
                self._lines.setdefault(section, []).append(line)
                self._taken.add(line.text)
                self.room -= cost
                share -= cost

    def name(self, found: Sequence[IdentifierMention], overheard: Sequence[str], most: int) -> None:
        """Name the identifiers that no line names: all by themselves first, then the first ones in what was said."""
        self.room -= _cost(f"## {IDENTIFIERS}\n") + _cost(ALSO)
        whole = self._lasting()
        missing = [mention for mention in found if not is_named(mention.name, whole)]
        bare = {mention.name: _cost(mention.name + SEPARATOR) for mention in missing}
        fitting = _fitting(bare, self.room)
        self.room -= sum(bare[name] for name in fitting)
        self._tell([mention for mention in missing if mention.name in fitting], fitting, bare)
        more = [name for name in dict.fromkeys(overheard) if name not in bare and not is_named(name, whole)]
        listed = {name: _cost(name + SEPARATOR) for name in more}
        fitting += (others := _fitting(listed, min(most, self.room)))
        self.room -= sum(listed[name] for name in others)
        if fitting:
            self._lines.setdefault(IDENTIFIERS, []).append(Line(ALSO + SEPARATOR.join(fitting), len(found)))

    def _lasting(self) -> str:
        """Everything that names what need not be named again. What tools were called with is no part of it: the next
        summary has no room for that."""
        lines = [line.text for section, lines in self._lines.items() if section != PROGRESS for line in lines]
        return "\n".join([self._held, *lines])

    def _tell(self, missing: Sequence[IdentifierMention], fitting: list[str], bare: dict[str, int]) -> None:
        """Put sentences in the place of bare names, as long as there is room. Names of one sentence go together."""
        for at, mention in enumerate(missing):
            if mention.name not in fitting or not mention.sentence:
                continue
            line = clipped_around(mention.sentence, mention.name, NAME_CHARACTERS)
            inside = [name for name in fitting if name in line]
            cost = _cost(line) - sum(bare[name] for name in inside)
            if cost <= self.room and inside:
                self.room -= cost
                fitting[:] = [name for name in fitting if name not in inside]
                self._lines.setdefault(IDENTIFIERS, []).append(Line(line, at))

    def listed(self, section: str) -> str:
        """The lines of a section, in their order; "" if there are none."""
        return _listed(self._lines.get(section, ()))

    def text(self) -> str:
        """The page: with every heading, if there is room for those with nothing below."""
        bodies = {section: _listed(lines) for section, lines in self._lines.items()}
        whole = written(bodies)
        if estimate(whole) <= self._limit:
            return whole
        return "\n\n".join(f"## {name}\n{bodies[name]}" for name in (*SECTIONS, TURN) if name in bodies)


def _listed(lines: Iterable[Line]) -> str:
    return "\n".join(f"- {line.text}" for line in sorted(lines, key=lambda line: (line.at, line.within)))


def _cost(line: str) -> int:
    """Estimated tokens of a line with its mark and its end; that of several lines is at most the sum."""
    return estimate(f"- {line}\n")


def _fitting(costs: dict[str, int], room: int) -> list[str]:
    """The first names that have room."""
    names = []
    for name, cost in costs.items():
        if (room := room - cost) < 0:
            break
        names.append(name)
    return names
