"""The logs of a home besides the journals and the facts: entries that quote erased texts, or belong to an erased person, are
emptied, and the sums computed again.

An emptied entry keeps its number and time, and gets the kind `entry_erased`, which every reader skips. Entries of plugins,
which the gateway does not interpret, keep their form, and lose the texts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gateway.conversations.deletion.deletion_log import DELETIONS
from gateway.conversations.erasure.text_scrubbing import TextScrubber
from gateway.conversations.facts.fact_store import LOG as FACTS
from gateway.support.home import SPENDING, Home
from gateway.support.storage import plugins_with_logs
from sessions.events.errors import UnknownSession
from sessions.store.protocols import START, Lines, Store
from sessions.store.rewriting import Change, rechained

Rewrite: TypeAlias = Callable[[Callable[[Lines], Iterator[bytes]]], Awaitable[None]]
"""Replaces the lines of a log, which is closed meanwhile; see `LazyLog.rewrite`."""

_EMPTIED = b'%s,"kind":"entry_erased","sum":"0000000000000000"}\n'
_ENVELOPE = re.compile(rb'\A\{"seq":[0-9]+,"at":"[^"]*","turn":(?:null|[0-9]+)')

_NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "approvals": ("rule",),
    "pairings": ("channel", "address"),
    "people": ("person",),
    "responses": ("id",),
    "schedules": ("schedule",),
    "shares": ("share",),
}
"""The fields that name the thing of which an entry of a log tells."""

_CONTENT = frozenset({"approvals", "responses", "schedules"})
"""The logs whose entries may quote what was said; the others have names and addresses."""

_ID: TypeAlias = tuple[object, ...]


NAMED_FILES = 20
"""The number of files of channels and logins that a receipt names."""


def unexamined_files(folders: Sequence[Path]) -> list[str]:
    """Return a sentence that names the files that the gateway cannot examine, by their paths below the home; none if there
    are none. Blocks."""
    paths = [
        f"{folder.name}/{path.relative_to(folder)}"
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    if not paths:
        return []
    more = f" and {len(paths) - NAMED_FILES} more" if len(paths) > NAMED_FILES else ""
    return [
        f"What channels and logins keep, which may have addresses of the person: {', '.join(paths[:NAMED_FILES])}{more}."
        " Stop the gateway and delete a file to remove it; the channel or the login is then set up anew."
    ]


class OtherLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log of the home, or of a plugin if `plugin` is not empty. `rewrite` closes and replaces it."""

    name: str
    store: Store
    rewrite: Rewrite
    plugin: str = ""

    @property
    def label(self) -> str:
        """Its path in a home with files."""
        return f"plugins/{self.plugin}/{self.name}.jsonl" if self.plugin else f"{self.name}.jsonl"


def other_logs(
    home: Home,
    root: Store,
    of_plugin: Callable[[str], Store],
    opened: Callable[[str, str], Rewrite | None] = lambda name, plugin: None,
) -> list[OtherLog]:
    """Return the logs of a home besides journals, facts and deletions. Blocks; raises StorageFailed.

    Args:
        home: The home.
        root: The store of the logs of the home itself.
        of_plugin: Returns the store of a plugin's log.
        opened: Returns what rewrites a log, by its name and plugin, that this process may have open.
    """
    names = [name for name, _ in root.listed() if name not in (FACTS, DELETIONS.name)]
    stores = [(name, "", root) for name in names]
    stores += [("log", plugin, of_plugin(plugin)) for plugin in plugins_with_logs(home)]
    return [
        OtherLog(name=name, plugin=plugin, store=store, rewrite=opened(name, plugin) or partial(store.rewrite, name))
        for name, plugin, store in stores
    ]


def pseudonym(erasure: str) -> str:
    """Return the name under which the ledger keeps what an erased person has spent."""
    return f"erased-{erasure[:8]}"


class EntryEraser:
    """The change to the lines of one log: chosen entries are emptied, and with them all that tell of the same thing.

    Args:
        named_by: The fields that name the thing.
        mark: Returns False for a line that is certainly not chosen.
        is_chosen: Returns True for the fields of an entry that is chosen.
    """

    def __init__(
        self, named_by: Sequence[str], mark: Callable[[bytes], bool], is_chosen: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self._named_by = named_by
        self._mark = mark
        self._is_chosen = is_chosen
        self._erased = set[_ID]()

    def __call__(self, line: bytes) -> bytes:
        """Return the emptied line, or the same object."""
        if not self._erased and not self._mark(line):
            return line
        fields = msgspec.json.decode(line)
        id_ = tuple(fields.get(name) for name in self._named_by)
        if self._is_chosen(fields):
            self._erased.add(id_)
        elif "person" in fields and (fields.get("base"),) not in self._erased:
            self._erased.discard(id_)  # somebody else's from here on
            return line
        elif id_ not in self._erased and (fields.get("base"),) not in self._erased:
            return line
        else:
            self._erased.add(id_)
        return emptied(line)


def emptied(line: bytes) -> bytes:
    """Return a line with its number and time only, and any sum."""
    found = _ENVELOPE.match(line)
    assert found is not None
    return _EMPTIED % found[0]


class PersonEraser:
    """The change to the lines of a log when a person is erased: their entries are emptied; where others' name them, and in
    the ledger, whose sums stay, they get another name."""

    def __init__(self, log: str, person: str, other: str) -> None:
        name = msgspec.json.encode(person)
        own = b'"person":%s' % name
        self._entries = (
            None
            if log.startswith(SPENDING)
            else EntryEraser(
                _NAMED_BY.get(log, ()), lambda line: own in line, lambda fields: bool(fields.get("person") == person)
            )
        )
        self._names = {
            b'"%s":%s' % (field, prefix % person.encode()): b'"%s":%s' % (field, prefix % other.encode())
            for field, prefix in ((b"by", b'"%s"'), (b"person", b'"%s"'), (b"scope", b'"person:%s"'))
        }

    def __call__(self, line: bytes) -> bytes:
        """Return the changed line, or the same object."""
        if self._entries is not None and (after := self._entries(line)) is not line:
            return after
        for name, other in self._names.items():
            if name in line:  # no text has this, since its quotes would be escaped
                line = line.replace(name, other)
        return line


def quote_eraser(log: OtherLog, scrubber: TextScrubber) -> Change | None:
    """Return the change to a log of what quotes erased texts; None if it has no texts."""
    if log.plugin:
        return scrubber.everywhere
    if log.name not in _CONTENT:
        return None
    return EntryEraser(_NAMED_BY[log.name], scrubber.is_in, lambda fields: scrubber.is_in(msgspec.json.encode(fields)))


async def erase_from(logs: Sequence[OtherLog], change: Callable[[OtherLog], Change | None]) -> list[str]:
    """Rewrite the logs in which something changes, and return their labels. `change` makes a change for one reading.

    Raises SessionsError.
    """
    found = list[str]()
    for log in logs:
        if await asyncio.to_thread(_changes, log, change(log)):
            await log.rewrite(partial(_rewritten, log, change))
            found.append(log.label)
    return found


def _rewritten(log: OtherLog, change: Callable[[OtherLog], Change | None], lines: Lines) -> Iterator[bytes]:
    found = change(log)
    assert found is not None
    return rechained(lines, found)


def _changes(log: OtherLog, change: Change | None) -> bool:
    if change is None:
        return False
    try:
        with log.store.read(log.name) as lines:
            return any(change(line) is not line for line in lines.forward(START))
    except UnknownSession:
        return False
