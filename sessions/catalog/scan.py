"""A scan of all logs of a store, which reads the headers and last lines of those that have changed."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import msgspec

from sessions.events.codec import InvalidLine, decode, is_complete_line
from sessions.events.errors import SessionsError, StorageFailed, UnknownSession
from sessions.events.events import Recorded, SessionClosed
from sessions.files.append_file import error_text
from sessions.store.catalog import SessionRow
from sessions.store.header import read_header
from sessions.store.protocols import START, Lines, LogReader, Stamp
from sessions.store.reading import verify_lines


class LogScan(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scan.

    `changed` are the rows of sessions whose log is new or differs from its row. `unreadable` maps sessions whose log has no
    valid header, is missing, or ends before an acknowledged event to the reason. `empty` are unknown logs without a complete
    line, of which nothing was ever acknowledged. `unknown` are those unreadable logs that may belong to any key, because
    they are new and could not be read.
    """

    changed: list[SessionRow]
    unreadable: dict[str, str]
    empty: list[str]
    unknown: dict[str, str]


def scan_logs(logs: LogReader, known: Mapping[str, SessionRow]) -> LogScan:
    """Compare all logs with the rows by their stamps, and read those that differ. Blocks; reads only.

    A known session keeps its row if its log is missing, ends before an acknowledged event, or lost its header: its key must
    report the damage instead of starting anew. Raises StorageFailed if the logs cannot be listed.
    """
    found = LogScan(changed=[], unreadable={}, empty=[], unknown={})
    present: set[str] = set()
    for session, stamp in logs.listed():
        present.add(session)
        row = known.get(session)
        if row is not None and (row.size, row.mtime_ns) == (stamp.size, stamp.changed):
            continue
        try:
            found.changed.append(_checked(_read_row(logs, session, stamp), row))
        except (InvalidLine, StorageFailed) as error:
            cause = error.__cause__ if isinstance(error, StorageFailed) else None
            found.unreadable[session] = str(cause or error)
            if row is not None:
                found.changed.append(msgspec.structs.replace(row, settled=False))
            elif isinstance(error, InvalidLine):
                if stamp.changed and _holds_no_line(logs, session):
                    found.empty.append(session)
            elif not isinstance(cause, OSError):
                found.unknown[session] = str(error)
            elif cause.errno != errno.ELOOP:  # journals are never links
                found.unknown[session] = error_text(cause)
        except UnknownSession:
            present.discard(session)
    for session in sorted(known.keys() - present):
        found.unreadable[session] = "it is missing"
    succeeded = {row.succeeds.session for row in (*known.values(), *found.changed) if row.succeeds is not None}
    found.empty[:] = [session for session in found.empty if session not in succeeded]  # another session succeeds it
    for session in found.empty:
        del found.unreadable[session]
    return found


def _holds_no_line(logs: LogReader, session: str) -> bool:
    """Return True if a log is empty or only a torn tail."""
    try:
        with logs.read(session) as lines:
            return verify_lines(lines, START, lambda _: None) == START
    except SessionsError:
        return False


def _checked(read: SessionRow, known: SessionRow | None) -> SessionRow:
    """Return the row unless the log lacks acknowledged events. Raises InvalidLine."""
    if known is not None and read.head < known.acknowledged:
        raise InvalidLine(f"it ends with event {read.head}, but event {known.acknowledged} was acknowledged")
    return read


def _read_row(logs: LogReader, session: str, stamp: Stamp) -> SessionRow:
    """Return a row from the first and the last line of a log. Raises InvalidLine, StorageFailed, UnknownSession."""
    if not stamp.changed:
        raise InvalidLine("it is not a regular file")  # opening a pipe would block
    with logs.read(session) as lines:
        began, last = read_header(lines), last_event(lines)
    return SessionRow(
        session=began.session,
        key=began.key,
        person=began.person,
        agent=began.agent,
        opened_at=began.at,
        succeeds=began.succeeds,
        head=last.seq,
        at=last.at,
        size=stamp.size,
        mtime_ns=0,
        settled=False,
        closed=isinstance(last.event, SessionClosed),
    )


def last_event(lines: Lines) -> Recorded:
    """Return the last intact event of a log. Raises InvalidLine."""
    for line, _ in lines.backward():
        if is_complete_line(line):
            try:
                return decode(line)
            except InvalidLine:
                continue  # damage, which is reported when the journal is opened
    raise InvalidLine("it has no complete line")
