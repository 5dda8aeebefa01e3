"""What can go wrong on this floor, as one small tree.

SessionsError
├── HomeLocked       another gateway owns this home; stop it, or choose another home
├── StorageFailed    bytes could not be made durable; nothing of that batch was acknowledged
├── StorageBusy      too many bytes wait for the disk; try again shortly
├── JournalDamaged   a journal is not what was written, or is gone; what there is of it is left as it is
└── UnknownSession   no journal has this id
"""

from __future__ import annotations

from pathlib import Path


class SessionsError(Exception):
    """The root of this floor's errors; `str(error)` is one sentence that a person can act on."""


class HomeLocked(SessionsError):
    """Another process holds the home's lock."""


class StorageFailed(SessionsError):
    """A write or a sync failed.

    `fatal` is true when a sync failed: the kernel may have dropped the pages, so nothing may be acknowledged by this
    process any more. A failed write is not fatal: the journal was cut back to its durable length.
    """

    def __init__(self, sentence: str, *, fatal: bool = False) -> None:
        super().__init__(sentence)
        self.fatal = fatal


class StorageBusy(SessionsError):
    """The bound on bytes that wait for the disk is reached."""


class JournalDamaged(SessionsError):
    """A journal does not verify, or is gone. `line` counts from 1, and is 0 where it is no single line; `good_seq` and
    `good_end` (bytes) describe the whole prefix."""

    def __init__(self, path: Path, line: int, reason: str, *, good_seq: int = 0, good_end: int = 0) -> None:
        super().__init__(f"{path.name}, line {line}: {reason}" if line else f"{path.name}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason
        self.good_seq = good_seq
        self.good_end = good_end


class UnknownSession(SessionsError):
    """No journal has this session id."""
