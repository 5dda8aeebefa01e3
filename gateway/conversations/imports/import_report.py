"""The report of an import: what came, what was here already, and what is left out and why."""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

import msgspec

from gateway.conversations.imports.journal_import import ConversationOutcome
from gateway.conversations.imports.readers.import_values import LeftOut, SourceRoute
from gateway.support.printable import one_line

NAMED = 3
"""Names of items that are left out for the same reason which are shown."""

MOST_REASONS = 200
"""Different reasons that are kept; the others are counted together."""

Outcome: TypeAlias = Literal["new", "forked", "continued", "unchanged"]

_WORDS = {"new": "new", "forked": "forked", "continued": "continued", "unchanged": "here already"}
_ORDER = ("conversations", "branches", "files", "notes", "facts", "schedules", "skills")


class ImportedItems(msgspec.Struct, frozen=True, kw_only=True):
    """What became of facts or schedules."""

    new: int = 0
    unchanged: int = 0
    left: tuple[LeftOut, ...] = ()


class LeftOutReport(msgspec.Struct, frozen=True, kw_only=True):
    """Items that are left out for one reason; `names` has a few of them."""

    kind: str
    reason: str
    count: int
    names: tuple[str, ...]


class ReportValues(msgspec.Struct, frozen=True, kw_only=True):
    """A report as JSON. `items` counts what came by kind and outcome, `messages` those that were added. `routes` are lines
    for the configuration."""

    program: str
    dry_run: bool
    items: dict[str, dict[str, int]]
    messages: int
    left_out: tuple[LeftOutReport, ...]
    routes: tuple[str, ...]


class ImportReport:
    """Collects a report. Its size does not grow with the source."""

    def __init__(self, program: str, *, dry_run: bool) -> None:
        self._program = program
        self._dry_run = dry_run
        self._items: dict[str, Counter[str]] = {}
        self._messages = 0
        self._left: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
        self._routes: list[str] = []

    def add(self, kind: str, outcome: Outcome, count: int = 1) -> None:
        """Count items with an outcome."""
        if count:
            self._items.setdefault(kind, Counter())[outcome] += count

    def add_conversation(self, outcome: ConversationOutcome) -> None:
        """Add what became of a conversation: of its first branch, and of the others, which are forks."""
        for number, branch in enumerate(outcome.branches):
            self.add("branches" if number else "conversations", branch.outcome)
            self._messages += branch.messages
        for left in outcome.left:
            self.leave(left)

    def add_items(self, kind: str, items: ImportedItems) -> None:
        """Add what became of facts or schedules."""
        self.add(kind, "new", items.new)
        self.add(kind, "unchanged", items.unchanged)
        for left in items.left:
            self.leave(left)

    def add_written(self, kind: str, written: Outcome | LeftOut) -> None:
        """Add what became of a note or a skill."""
        if isinstance(written, LeftOut):
            self.leave(written)
        else:
            self.add(kind, written)

    def add_route(self, route: SourceRoute) -> None:
        """Add a route, which a person has to write into the configuration."""
        fields = {"channel": route.channel, "chat": route.chat, "sender": route.sender, "agent": route.agent}
        pairs = (f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items() if value)
        if len(self._routes) < MOST_REASONS:
            self._routes.append("\n".join(["[[routes]]", *pairs]))

    def leave(self, left: LeftOut) -> None:
        """Count something that is left out."""
        where = (left.kind, left.reason)
        if where not in self._left and len(self._left) >= MOST_REASONS:
            where = (left.kind, "other reasons")
        count, names = self._left.get(where, (0, ()))
        if left.name and left.name not in names and len(names) < NAMED:
            names = (*names, one_line(left.name, 80))
        self._left[where] = (count + left.count, names)

    def values(self) -> ReportValues:
        """Return the report as values."""
        left = (
            LeftOutReport(kind=kind, reason=reason, count=count, names=names)
            for (kind, reason), (count, names) in self._left.items()
        )
        return ReportValues(
            program=self._program,
            dry_run=self._dry_run,
            items={kind: dict(counts) for kind, counts in self._items.items()},
            messages=self._messages,
            left_out=tuple(left),
            routes=tuple(self._routes),
        )

    def text(self) -> str:
        """Return the report as lines for a terminal."""
        lines = [f"From {self._program}, nothing of which is imported yet:" if self._dry_run else f"From {self._program}:"]
        for kind in sorted(self._items, key=_ORDER.index):
            counts = ", ".join(f"{count:,} {_WORDS[name]}" for name, count in self._items[kind].items())
            lines.append(f"- {kind}: {counts}" + (f"; {self._messages:,} messages" if kind == "conversations" else ""))
        if not self._items:
            lines.append("- nothing")
        if "skills" in self._items and self._items["skills"]["new"] and not self._dry_run:
            lines.append("  Skills are not used until `exuvia skills add` has shown and admitted them.")
        if "schedules" in self._items and self._items["schedules"]["new"]:
            lines.append("  Schedules are paused, since the other program may still run; `exuvia schedule resume ID`.")
        if self._left:
            lines.append("Left out:")
        for (kind, reason), (count, names) in self._left.items():
            named = f" ({', '.join(names)}{', …' if count > len(names) else ''})" if names else ""
            lines.append(f"- {count:,} {kind}: {one_line(reason, 200)}{named}")
        if self._routes:
            lines += ["Routes, for config.toml where you want them:", *self._routes]
        return "\n".join(lines) + "\n"
