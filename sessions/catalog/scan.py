"""A scan of a folder of journals, which reads their headers and last lines."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sessions.events.codec import InvalidLine, decode, is_complete_line
from sessions.events.errors import SessionsError, UnknownSession
from sessions.events.events import Recorded, SessionClosed
from sessions.files.append_file import error_text
from sessions.files.journal_folder import FileLines, open_lines, open_to_read
from sessions.store.catalog import SessionRow
from sessions.store.header import read_header
from sessions.store.protocols import START
from sessions.store.reading import verify_lines


class FolderScan(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scan.

    `changed` are the rows of sessions whose journal is new or differs from its row. `unreadable` maps sessions whose journal
    has no valid header, is missing, or ends before an acknowledged event to the reason. `empty` are unknown journals without
    a complete line, of which nothing was ever acknowledged. `unknown` are those unreadable journals that may belong to any
    key, because they are new and the system could not read them.
    """

    changed: list[SessionRow]
    unreadable: dict[str, str]
    empty: list[str]
    unknown: dict[str, str]


def scan_folder(folder: Path, known: Mapping[str, SessionRow]) -> FolderScan:
    """Compare the folder's journals with the rows by size and modification time, and read those that differ. Blocks; reads
    only.

    A known session keeps its row if its journal is missing, ends before an acknowledged event, or lost its header: its key
    must report the damage instead of starting anew. Raises OSError if the folder cannot be listed.
    """
    found = FolderScan(changed=[], unreadable={}, empty=[], unknown={})
    present: set[str] = set()
    for entry in _journals(folder):
        session = entry.name.removesuffix(".jsonl")
        present.add(session)
        row = known.get(session)
        try:
            now = entry.stat(follow_symlinks=False)
            if row is None or (row.size, row.mtime_ns) != (now.st_size, now.st_mtime_ns):
                found.changed.append(_checked(read_row(Path(entry.path), now), row))
        except (InvalidLine, OSError) as error:
            found.unreadable[session] = str(error)
            if row is not None:
                found.changed.append(msgspec.structs.replace(row, settled=False))
            elif isinstance(error, InvalidLine):
                if entry.is_file(follow_symlinks=False) and _holds_no_line(Path(entry.path)):
                    found.empty.append(session)
            elif error.errno != errno.ELOOP:  # journals are never links
                found.unknown[session] = error_text(error)
        except UnknownSession:
            present.discard(session)
    for session in sorted(known.keys() - present):
        found.unreadable[session] = "it is missing"
    succeeded = {row.succeeds.session for row in (*known.values(), *found.changed) if row.succeeds is not None}
    found.empty[:] = [session for session in found.empty if session not in succeeded]  # another session succeeds it
    for session in found.empty:
        del found.unreadable[session]
    return found


def _holds_no_line(path: Path) -> bool:
    """Return True if a journal is empty or only a torn tail."""
    try:
        with open_lines(path) as lines:
            return verify_lines(lines, START, lambda _: None) == START
    except SessionsError:
        return False


def _checked(read: SessionRow, known: SessionRow | None) -> SessionRow:
    """Return the row unless the journal lacks acknowledged events. Raises InvalidLine."""
    if known is not None and read.head < known.acknowledged:
        raise InvalidLine(f"it ends with event {read.head}, but event {known.acknowledged} was acknowledged")
    return read


def _journals(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.endswith(".jsonl")]
    except FileNotFoundError:
        return []


def read_row(path: Path, found: os.stat_result) -> SessionRow:
    """Return a row from the first and the last line of a journal. Blocks; raises InvalidLine, OSError, UnknownSession."""
    if not stat.S_ISREG(found.st_mode):
        raise InvalidLine("it is not a regular file")  # opening a pipe would block
    descriptor = open_to_read(path)
    try:
        lines = FileLines(descriptor, path.stem)
        began, last = read_header(lines), _last(lines)
    finally:
        os.close(descriptor)
    return SessionRow(
        session=began.session,
        key=began.key,
        person=began.person,
        opened_at=began.at,
        succeeds=began.succeeds,
        head=last.seq,
        at=last.at,
        size=found.st_size,
        mtime_ns=0,
        settled=False,
        closed=isinstance(last.event, SessionClosed),
    )


def _last(lines: FileLines) -> Recorded:
    for line, _ in lines.backward():
        if is_complete_line(line):
            try:
                return decode(line)
            except InvalidLine:
                continue  # damage, which is reported when the journal is opened
    raise InvalidLine("it has no complete line")
