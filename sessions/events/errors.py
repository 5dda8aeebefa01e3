"""Exceptions of this layer.

SessionsError
├── HomeLocked       another gateway uses this home; stop it, or choose another home
├── StorageFailed    bytes could not be made durable; nothing of that batch was acknowledged
│   └── LogReplaced  another process has rewritten or removed a shared log; it is read again
├── StorageBusy      too many bytes are waiting for the disk; try again shortly
├── JournalDamaged   a journal does not verify or is missing; its file is left unchanged
└── UnknownSession   no journal has this id
"""

from __future__ import annotations


class SessionsError(Exception):
    """Base class of this layer's errors; `str(error)` is a sentence for the operator that says what to do."""


class HomeLocked(SessionsError):
    """Another process holds the home's lock."""


class StorageFailed(SessionsError):
    """A failed write or sync.

    `fatal` is True if a sync failed: the kernel may have dropped the pages, so this process must not acknowledge anything
    any more. A failed write is not fatal: the journal was truncated to its durable length.
    """

    def __init__(self, sentence: str, *, fatal: bool = False) -> None:
        super().__init__(sentence)
        self.fatal = fatal


class LogReplaced(StorageFailed):
    """A log that is shared was rewritten or removed by another process, and must be opened again."""


class StorageBusy(SessionsError):
    """The limit on bytes waiting for the disk is reached."""


class JournalDamaged(SessionsError):
    """A journal that does not verify or is missing.

    `line` counts from 1; it is 0 if the damage is not in a single line. `good_seq` and `good_end` (bytes) are the end of the
    intact prefix.
    """

    def __init__(self, session: str, line: int, reason: str, *, good_seq: int = 0, good_end: int = 0) -> None:
        name = f"{session}.jsonl"
        super().__init__(f"{name}, line {line}: {reason}" if line else f"{name}: {reason}")
        self.session = session
        self.line = line
        self.reason = reason
        self.good_seq = good_seq
        self.good_end = good_end


class UnknownSession(SessionsError):
    """No journal has this session id."""
