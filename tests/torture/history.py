"""A history of what clients of a gateway saw, and the journals that it left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One sending of a message. `began` and `ended` are seconds of one clock; `outcome` is `accepted`, the code of an
    error, or None where no answer came."""

    id: str
    key: str
    text: str
    began: float
    ended: float = 0.0
    outcome: str | None = None
    session: str = ""
    seq: int = 0
    duplicate: bool = False


@dataclass
class Stream:
    """The events of one subscription, or of one connection of a client to a key, in the order in which they came. `session`
    and `after` are what was subscribed; without them the first event may be any."""

    client: str
    key: str
    session: str = ""
    after: int = 0
    events: list[tuple[str, Event]] = field(default_factory=list)


@dataclass
class Journal:
    """A journal as it stands at the end. The first `copied` events are those of the session that it was forked from."""

    session: str
    key: str
    events: list[Event]
    copied: int = 0
    left: tuple[int, ...] = ()

    @property
    def succeeds(self) -> str | None:
        """Return the session before this one under its key."""
        before = self.events[0].get("succeeds")
        return before["session"] if before and not self.copied else None


@dataclass
class History:
    """Everything that is checked."""

    attempts: list[Attempt] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    followed: dict[tuple[str, str], int] = field(default_factory=dict)
    """The first seq that each client saw of each session which it followed."""
    heads: dict[str, int] = field(default_factory=dict)
    """The last seq of each session that all who followed it were to see."""
    forks: list[Event] = field(default_factory=list)
    """The `forked` frames."""
    uploads: dict[str, bool] = field(default_factory=dict)
    """Attachments by their SHA-256, and whether they were given back whole at the end."""
    stamps: list[str] = field(default_factory=list)
    """The calls of the unrepeatable tool that were run, as it wrote them down itself: `session/of/index`."""
    listed: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The catalog at the end: each key's session and its head."""
    operations: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    """What was found wrong while the history was made."""


def read_journal(lines: Iterable[bytes]) -> Journal:
    """Parse a journal."""
    events: list[Event] = [json.loads(line) for line in lines]
    journal = Journal(session=events[0]["session"], key=events[0]["key"], events=events)
    for event in events:
        event.pop("sum")
        if event["kind"] == "session_forked":
            journal.session, journal.key = event["session"], event["key"]
            journal.copied = event["seq"]
            journal.left += tuple(event.get("left", ()))
    return journal


def read_journals(home: Path) -> list[Journal]:
    """Parse the journals of a home. Lines that are not whole, as of a gateway that is writing, are left out."""
    found = []
    for path in sorted((home / "sessions").glob("*.jsonl")):
        content = path.read_bytes()
        if lines := content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]:
            found.append(read_journal(lines))
    return found
