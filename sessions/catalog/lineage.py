"""The sessions of each key and their succession: an in-memory index over the catalog's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from sessions.store.catalog import Name, SessionRow

_Key = TypeVar("_Key", Name, str)


class Lineage:
    """All rows, by session and by name. Every lookup costs at most the number of sessions of one name."""

    def __init__(self) -> None:
        self.rows: dict[str, SessionRow] = {}
        self._names: dict[Name, set[str]] = {}
        self._successors: dict[str, set[str]] = {}
        self._current: dict[Name, str] = {}

    def put(self, row: SessionRow) -> None:
        """Insert or replace the row of a session."""
        former = self.rows.get(row.session)
        self.rows[row.session] = row
        if former is not None:
            if (former.name, former.succeeds) == (row.name, row.succeeds):
                return
            self._unlink(former)
        self._names.setdefault(row.name, set()).add(row.session)
        if row.succeeds is not None:
            self._successors.setdefault(row.succeeds.session, set()).add(row.session)
        self._current.pop(row.name, None)

    def remove(self, session: str) -> None:
        """Remove the row of a session, if there is one."""
        if (row := self.rows.pop(session, None)) is not None:
            self._unlink(row)

    def current(self, name: Name) -> SessionRow | None:
        """Return the session that receives the name's messages: the newest one without a successor."""
        if (session := self._current.get(name)) is not None:
            return self.rows[session]
        rows = [self.rows[session] for session in self._names.get(name, ())]
        heads = [row for row in rows if not self._succeeding(row)] or rows  # a cycle has no head
        if not heads:
            return None
        newest = max(heads, key=_age)
        self._current[name] = newest.session
        return newest

    def names(self, person: str) -> list[Name]:
        """Return the person's conversations, in the order of their keys."""
        return [(person, key) for key in sorted(key for owner, key in self._names if owner == person)]

    def chain(self, session: str) -> list[SessionRow]:
        """Return the predecessors of a session, newest first."""
        return list(self._ancestors(session))

    def successor(self, session: str) -> SessionRow | None:
        """Return the session of the same name that follows this one, the newest of several."""
        row = self.rows.get(session)
        return max(self._succeeding(row), key=_age, default=None) if row else None

    def all_of(self, name: Name) -> list[SessionRow]:
        """Return every session of the name, newest first: the current one, its predecessors, then all others."""
        current = self.current(name)
        if current is None:
            return []
        line = [current, *self._ancestors(current.session)]
        others = self._names[name].difference(row.session for row in line)
        return line + sorted((self.rows[session] for session in others), key=_age, reverse=True)

    def _ancestors(self, session: str) -> Iterator[SessionRow]:
        row, seen = self.rows.get(session), {session}
        while row is not None and row.succeeds is not None and row.succeeds.session not in seen:
            older = self.rows.get(row.succeeds.session)
            if older is None or older.name != row.name:
                return
            seen.add(older.session)
            yield older
            row = older

    def _succeeding(self, row: SessionRow) -> list[SessionRow]:
        found = (self.rows[session] for session in self._successors.get(row.session, ()))
        return [other for other in found if other.name == row.name]

    def _unlink(self, row: SessionRow) -> None:
        _discard(self._names, row.name, row.session)
        if row.succeeds is not None:
            _discard(self._successors, row.succeeds.session, row.session)
        self._current.pop(row.name, None)


def _discard(index: dict[_Key, set[str]], key: _Key, session: str) -> None:
    index[key].discard(session)
    if not index[key]:
        del index[key]


def _age(row: SessionRow) -> tuple[str, str]:
    return row.opened_at, row.session
