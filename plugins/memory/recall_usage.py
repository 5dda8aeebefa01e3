"""Which documents were recalled, cited by a search or read, according to the logs of the sessions.

The logs are read backwards, the newest first, up to a limit of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import SessionsError
from sessions.events.events import MemoryRecalled, ModelReplied, ToolReturned
from sessions.store.protocols import LogReader

BUDGET = 256 * 1024 * 1024
"""Maximum bytes of logs that are read."""

_TELLING = (b'"kind":"memory_recalled"', b'"kind":"tool_returned"', b'"kind":"model_replied"')
_CITED = re.compile(r'"citation":"([^"#]+)#L')
_READ = re.compile(r'"path"\s*:\s*"([^"]+)"')
_AT = re.compile(rb'\A\{"seq":[0-9]+,"at":"([^"]{20,30})"')


class NoteUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The paths that were used since `since`, the time of the oldest event read ("" for none).

    `all` is True if no older ones exist.
    """

    paths: frozenset[str]
    since: str = ""
    all: bool = True


def used(logs: LogReader, budget: int = BUDGET) -> NoteUsage:
    """Return the documents used in the sessions. Blocks while reading; unreadable logs are skipped."""
    found: set[str] = set()
    since, left = "", budget
    newest_first = sorted(logs.listed(), key=lambda listed: listed[1].changed, reverse=True)
    for session, _ in newest_first:
        for line in _lines(logs, session, left):
            left -= len(line)
            if at := _AT.match(line):
                since = min(filter(None, (since, at[1].decode())))
            found |= _paths(line)
        if left <= 0:
            return NoteUsage(paths=frozenset(found), since=since, all=False)
    return NoteUsage(paths=frozenset(found), since=since)


def _lines(logs: LogReader, session: str, budget: int) -> Iterator[bytes]:
    """Yield the lines of a log, the last first, up to the limit of bytes."""
    try:
        with logs.read(session) as lines:
            for line, _ in lines.backward():
                yield line
                budget -= len(line)
                if budget <= 0:
                    return
    except SessionsError:
        return


def _paths(line: bytes) -> set[str]:
    if not any(mark in line[:200] for mark in _TELLING):
        return set()
    try:
        event = decode(line).event
    except InvalidLine:
        return set()
    if isinstance(event, MemoryRecalled):
        return {hit.path for hit in event.hits}
    if isinstance(event, ToolReturned):
        return set(_CITED.findall(event.output))
    if isinstance(event, ModelReplied):
        return {path for call in event.calls if call.tool == "memory_get" for path in _READ.findall(call.arguments)}
    return set()
