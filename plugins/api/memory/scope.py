"""The scope of a search: limits that apply before results are ranked."""

from __future__ import annotations

from datetime import date
from typing import Self

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.support.workspace import EVERYBODY, NotesAccess, belongs_to, is_private


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Limits the results of a search.

    Attributes:
        owners: The people whose chunks may be found besides shared ones; None for everyone.
        private: Chunks that are only for private chats may be found.
        sources: The names of the sources to search; None for all.
        since: The first day; documents without a date are excluded. None for no limit.
        until: The last day; documents without a date are excluded. None for no limit.
        sender: Only chunks in which this person speaks.
        shown: A document and a line; chunks from that line on are excluded, because the model already sees them.
        everybodys: Chunks that belong to nobody, such as those of notes for everybody, may be found.
    """

    owners: frozenset[str] | None
    private: bool
    sources: frozenset[str] | None = None
    since: date | None = None
    until: date | None = None
    sender: str | None = None
    shown: tuple[str, int] | None = None
    everybodys: bool = True

    @classmethod
    def of_person(cls, person: str, *, group: bool, notes: NotesAccess = "all") -> Self:
        """Return the scope of a person in a chat: `notes` are those that their role shows them."""
        owners = frozenset() if notes == "none" else frozenset({person})
        return cls(owners=owners, private=not group, everybodys=notes == "all")

    def admits(self, chunk: Chunk) -> bool:
        """Return True if a chunk is in the scope."""
        return (
            (self.owners is None or chunk.owner in self._owners())
            and (self.sources is None or chunk.source in self.sources)
            and (self.private or not chunk.private)
            and (self.since is None or (bool(chunk.day) and chunk.day >= self.since.isoformat()))
            and (self.until is None or (bool(chunk.day) and chunk.day <= self.until.isoformat()))
            and (self.sender is None or self.sender.lower() in map(str.lower, chunk.senders))
            and (self.shown is None or chunk.path != self.shown[0] or chunk.first < self.shown[1])
        )

    def reads(self, path: str) -> bool:
        """Return True if the note at this path in the workspace may be shown."""
        parts = tuple(path.split("/"))
        owned = self.owners is None or belongs_to(parts) in self._owners()
        return owned and (self.private or not is_private(parts))

    def _owners(self) -> frozenset[str]:
        """Return the owners of the chunks that may be found, if not all may."""
        owners = self.owners or frozenset()
        return owners | {EVERYBODY} if self.everybodys else owners

    def condition(self) -> tuple[str, tuple[str | int, ...]]:
        """Return an SQL condition for the table `chunks` and its parameters; "" if everything is in the scope."""
        parts: list[str] = []
        values: list[str | int] = []
        owners = None if self.owners is None else self._owners()
        for column, allowed in (("owner", owners), ("source", self.sources)):
            if allowed is not None:
                parts.append(f"{column} IN ({', '.join('?' * len(allowed))})")
                values += sorted(allowed)
        if not self.private:
            parts.append("NOT private")
        for sign, day in ((">=", self.since), ("<=", self.until)):
            if day is not None:
                parts.append(f"day <> '' AND day {sign} ?")
                values.append(day.isoformat())
        if self.sender is not None:
            parts.append("instr(lower(senders), lower(?))")
            values.append(f"\n{self.sender}\n")
        if self.shown is not None:
            parts.append("NOT (path = ? AND first >= ?)")
            values += self.shown
        return " AND ".join(parts), tuple(values)


EVERYTHING = Scope(owners=None, private=True)
"""The scope of the gateway's operator."""
