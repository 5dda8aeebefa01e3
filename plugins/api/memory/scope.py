"""What a search may find: the limits that hold before anything is ranked."""

from __future__ import annotations

from datetime import date

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.support.workspace import EVERYBODY, belongs_to, is_private


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Who searches, and what for. `owners` are those whose chunks may be found beside those that are everybody's, None
    means all of them; `private` whether what is for private chats alone may be. The others narrow it further where they are
    given: to `sources` by their names, to the days from `since` to `until` (what has no date is of no day), to what
    `sender` said. `shown` is a document of which everything from a line on is before whoever searches anyway."""

    owners: frozenset[str] | None
    private: bool
    sources: frozenset[str] | None = None
    since: date | None = None
    until: date | None = None
    sender: str | None = None
    shown: tuple[str, int] | None = None

    def admits(self, chunk: Chunk) -> bool:
        """Whether a chunk is in the scope."""
        return (
            (self.owners is None or not chunk.owner or chunk.owner in self.owners)
            and (self.sources is None or chunk.source in self.sources)
            and (self.private or not chunk.private)
            and (self.since is None or (bool(chunk.day) and chunk.day >= self.since.isoformat()))
            and (self.until is None or (bool(chunk.day) and chunk.day <= self.until.isoformat()))
            and (self.sender is None or self.sender.lower() in map(str.lower, chunk.senders))
            and (self.shown is None or chunk.path != self.shown[0] or chunk.first < self.shown[1])
        )

    def reads(self, path: str) -> bool:
        """Whether a note at this path below the workspace may be shown."""
        parts = tuple(path.split("/"))
        owned = self.owners is None or belongs_to(parts) in {EVERYBODY, *self.owners}
        return owned and (self.private or not is_private(parts))

    def condition(self) -> tuple[str, tuple[str | int, ...]]:
        """The scope as a condition of SQL on the table `chunks`, and its parameters; the condition is empty where
        everything is in the scope."""
        parts: list[str] = []
        values: list[str | int] = []
        owners = None if self.owners is None else {"", *self.owners}
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
"""What the operator of the gateway may find."""
