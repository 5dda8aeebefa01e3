"""A SQLite that was built without FTS5, as some systems have it: every connection of this process refuses its tables."""

from __future__ import annotations

from typing import Any

import pytest

from sessions.catalog import sqlite


def refuse_fts5(patch: pytest.MonkeyPatch) -> None:
    """Have SQLite itself refuse, through its authorizer, whatever makes a table of FTS5, and whatever reads one."""
    real: Any = sqlite._copy

    def decide(action: int, first: str | None, second: str | None, *_: object) -> int:
        makes = action == real.SQLITE_CREATE_VTABLE and second == "fts5"
        touches = action in (real.SQLITE_READ, real.SQLITE_INSERT) and first in ("words", "parts")
        return int(real.SQLITE_DENY if makes or touches else real.SQLITE_OK)

    class Refusing:
        """The copy of SQLite that this process uses, without FTS5."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def connect(self, *given: Any, **named: Any) -> Any:
            connection = real.connect(*given, **named)
            connection.set_authorizer(decide)
            return connection

    patch.setattr(sqlite, "_copy", Refusing())
