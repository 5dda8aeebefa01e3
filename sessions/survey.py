"""A survey: what the journals of a folder say of themselves, read from their first and last lines."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sessions.backwards import lines_backwards
from sessions.errors import UnknownSession
from sessions.events import FORMAT, Recorded, SessionClosed, SessionOpened
from sessions.lineage import SessionRow
from sessions.verifying import open_to_read
from sessions.wire import FIRST, InvalidLine, decode, is_whole, verify

FIRST_LINE = 64 * 1024
"""Bytes within which the first line must end; it holds a few short names."""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """`changed`: the sessions whose journal is new or differs from its row. `gone`: those without a journal. `unreadable`:
    journals that do not say whose they are, each with the reason."""

    changed: list[SessionRow]
    gone: list[str]
    unreadable: dict[Path, str]


def survey(folder: Path, known: Mapping[str, SessionRow]) -> Survey:
    """Compare the folder's journals with the rows, by size and time, and read those that differ. Blocks; reads only.

    A known session whose first line can no longer be read keeps its row: its key must answer that the log is damaged, and
    not begin anew as if nothing had been there. Raises OSError where the folder cannot be listed.
    """
    found = Survey(changed=[], gone=[], unreadable={})
    present: set[str] = set()
    for entry in _journals(folder):
        session = entry.name.removesuffix(".jsonl")
        present.add(session)
        row = known.get(session)
        try:
            now = entry.stat(follow_symlinks=False)
            if row is None or (row.size, row.mtime_ns) != (now.st_size, now.st_mtime_ns):
                found.changed.append(_read_row(Path(entry.path), now))
        except (InvalidLine, OSError) as error:
            found.unreadable[Path(entry.path)] = str(error)
            if row is not None:
                found.changed.append(msgspec.structs.replace(row, mtime_ns=0, settled=False))
        except UnknownSession:
            present.discard(session)
    found.gone.extend(known.keys() - present)
    return found


def _journals(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.endswith(".jsonl")]
    except FileNotFoundError:
        return []


def _read_row(path: Path, found: os.stat_result) -> SessionRow:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidLine("it is not a regular file")  # opening a pipe would wait for ever
    descriptor = open_to_read(path)
    try:
        opened_at, opened = _first(descriptor, path.stem)
        last = _last(descriptor, found.st_size)
    finally:
        os.close(descriptor)
    return SessionRow(
        session=opened.session,
        key=opened.key,
        person=opened.person,
        opened_at=opened_at,
        succeeds=opened.succeeds,
        head=last.seq,
        at=last.at,
        size=found.st_size,
        mtime_ns=0,
        settled=False,
        closed=isinstance(last.event, SessionClosed),
    )


def _first(descriptor: int, session: str) -> tuple[str, SessionOpened]:
    line, newline, _ = os.pread(descriptor, FIRST_LINE, 0).partition(b"\n")
    try:
        verify(line + newline, FIRST, 1)
        recorded = decode(line)
    except InvalidLine as error:
        raise InvalidLine(f"its first line does not open a session: {error}") from error
    if not isinstance(recorded.event, SessionOpened):
        raise InvalidLine("its first line does not open a session")
    if recorded.event.format > FORMAT:
        raise InvalidLine(f"its format is {recorded.event.format}, and this version reads up to {FORMAT}")
    if recorded.event.session != session:
        raise InvalidLine(f"it is the journal of {recorded.event.session}, under another name")
    return recorded.at, recorded.event


def _last(descriptor: int, size: int) -> Recorded:
    for line, _ in lines_backwards(descriptor, 0, size):
        if is_whole(line):
            try:
                return decode(line)
            except InvalidLine:
                continue  # damage, which opening the journal will tell in full
    raise InvalidLine("it has no whole line")
