"""Sections of a summary that are filled line by line up to a token budget. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from plugins.policies.extract_sentences import LIST_PREFIX, SEPARATOR, IdentifierMention
from plugins.policies.identifiers import is_named
from plugins.policies.summary_sections import IDENTIFIERS, PROGRESS, SECTIONS, TURN, format_sections
from plugins.support.text.sentences import clipped_around
from sessions.events.tokens import estimate

SENTENCE_CHARACTERS = 160
"""Maximum characters of the sentence shown for an identifier."""


class Line(msgspec.Struct, frozen=True):
    """A line of a section, with its sort key: the index of the message, then the position within the message."""

    text: str
    at: int
    within: int = 0


class Page:
    """The lines chosen for a summary, within a budget of estimated tokens. `remaining` is what is left of the budget."""

    def __init__(self, limit: int) -> None:
        self.remaining = self._limit = limit
        self._lines: dict[str, list[Line]] = {}
        self._taken: set[str] = set()
        self._reserved = ""

    def reserve(self, text: str) -> None:
        """Reserve budget for a text that is added to the lines; identifiers in it need not be added again."""
        self.remaining -= estimate(text)
        self._reserved = text

    def fill(self, section: str, lines: Iterable[Line], share: int) -> None:
        """Add lines in order until the share of the budget is used up.

        Args:
            section: The heading to add the lines to.
            lines: The candidates, the most important first.
            share: Maximum estimated tokens for these lines.
        """
        share = min(share, self.remaining)
        for line in lines:
            if line.text in self._taken:
                continue
            cost = _cost(line.text) + (0 if section in self._lines else _cost(f"## {section}\n"))
            if cost <= share:
                self._lines.setdefault(section, []).append(line)
                self._taken.add(line.text)
                self.remaining -= cost
                share -= cost

    def add_identifiers(self, found: Sequence[IdentifierMention], other_names: Sequence[str], most: int) -> None:
        """Add the identifiers that no line contains: all those of `found` first, then `other_names`.

        Args:
            found: Ranked identifiers with their sentences.
            other_names: Identifiers that only occur in tool calls.
            most: Maximum estimated tokens for `other_names`.
        """
        self.remaining -= _cost(f"## {IDENTIFIERS}\n") + _cost(LIST_PREFIX)
        whole = self._text_so_far()
        missing = [mention for mention in found if not is_named(mention.name, whole)]
        bare = {mention.name: _cost(mention.name + SEPARATOR) for mention in missing}
        fitting = _first_fitting(bare, self.remaining)
        self.remaining -= sum(bare[name] for name in fitting)
        self._add_sentences([mention for mention in missing if mention.name in fitting], fitting, bare)
        more = [name for name in dict.fromkeys(other_names) if name not in bare and not is_named(name, whole)]
        section_lines = {name: _cost(name + SEPARATOR) for name in more}
        fitting += (others := _first_fitting(section_lines, min(most, self.remaining)))
        self.remaining -= sum(section_lines[name] for name in others)
        if fitting:
            self._lines.setdefault(IDENTIFIERS, []).append(Line(LIST_PREFIX + SEPARATOR.join(fitting), len(found)))

    def _text_so_far(self) -> str:
        """Return the text that already names identifiers, without tool calls: the next summary drops those."""
        lines = [line.text for section, lines in self._lines.items() if section != PROGRESS for line in lines]
        return "\n".join([self._reserved, *lines])

    def _add_sentences(self, missing: Sequence[IdentifierMention], fitting: list[str], bare: dict[str, int]) -> None:
        """Replace bare identifiers by sentences that contain them, while the budget lasts."""
        for at, mention in enumerate(missing):
            if mention.name not in fitting or not mention.sentence:
                continue
            line = clipped_around(mention.sentence, mention.name, SENTENCE_CHARACTERS)
            inside = [name for name in fitting if name in line]
            cost = _cost(line) - sum(bare[name] for name in inside)
            if cost <= self.remaining and inside:
                self.remaining -= cost
                fitting[:] = [name for name in fitting if name not in inside]
                self._lines.setdefault(IDENTIFIERS, []).append(Line(line, at))

    def section_lines(self, section: str) -> str:
        """Return the lines of a section in order, "" for none."""
        return _bullet_list(self._lines.get(section, ()))

    def text(self) -> str:
        """Return the page, with all headings if the budget allows empty ones."""
        bodies = {section: _bullet_list(lines) for section, lines in self._lines.items()}
        whole = format_sections(bodies)
        if estimate(whole) <= self._limit:
            return whole
        return "\n\n".join(f"## {name}\n{bodies[name]}" for name in (*SECTIONS, TURN) if name in bodies)


def _bullet_list(lines: Iterable[Line]) -> str:
    return "\n".join(f"- {line.text}" for line in sorted(lines, key=lambda line: (line.at, line.within)))


def _cost(line: str) -> int:
    """Return the estimated tokens of a line with its bullet and line ending."""
    return estimate(f"- {line}\n")


def _first_fitting(costs: dict[str, int], remaining: int) -> list[str]:
    """Return the leading names whose costs fit into the budget."""
    names = []
    for name, cost in costs.items():
        if (remaining := remaining - cost) < 0:
            break
        names.append(name)
    return names
