"""Opening a journal for appending: what a crash may have left at its end is mended; anything else is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.append_file import AppendFile, gone, reason, sync_failed
from sessions.files.fsync import open_folder, sync_content, sync_folder, write_new
from sessions.files.line_reader import lines_from, start_of_line
from sessions.files.verify import damaged, verify_lines, verify_position
from sessions.store.protocols import Position

SUSPECT = 256 * 1024
"""Bytes at the end that an earlier process may have lost in a failed sync, though they can still be read."""


def open_to_append(
    path: Path,
    quarantine: Path,
    after: Position,
    fold: Callable[[bytes], None],
    *,
    trusted: bool,
    least: int = 0,
    essential: bool = True,
) -> tuple[AppendFile, Position]:
    """Verify a journal behind `after`, giving each line to `fold`; set a torn tail aside in `quarantine` and cut it; make
    all that is left durable. Returns the file, closed, and its last position. For a thread, not the event loop.

    `trusted` says that the file is known to be as it was when it was last made durable: one sync suffices. Otherwise its
    end is written again first, because after a failed sync the kernel shows pages as clean that never reached the disk.
    `least` is the seq up to which it was acknowledged: a journal that ends before is damaged, and nothing of it is touched.

    Raises UnknownSession, StorageFailed, JournalDamaged (after a report in `quarantine`), and whatever `fold` raises.
    """
    descriptor = _open(path)
    try:
        size = os.fstat(descriptor).st_size
        verify_position(descriptor, path, after, size)
        last = verify_lines(descriptor, path, after, size, fold)
        if last.seq < least:
            raise damaged(path, last, f"acknowledged events are missing: it ends with event {last.seq} and had {least}")
        if last.offset < size:
            _set_aside(descriptor, path, quarantine, last.offset, size)
            _cut(descriptor, path, last.offset)
        _settle(descriptor, path, last.offset, trusted=trusted)
    except JournalDamaged as damage:
        report_damage(damage, quarantine)
        raise
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be opened: {reason(error)}.") from error
    finally:
        os.close(descriptor)
    return AppendFile(path, last.offset, fresh=False, essential=essential), last


def remove_unbegun(path: Path, quarantine: Path) -> None:
    """Remove a journal that holds no whole line; set aside in `quarantine` what there is of it. Blocks; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if size := os.fstat(descriptor).st_size:
            _set_aside(descriptor, path, quarantine, 0, size)
        path.unlink()
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def create_to_append(path: Path, *, essential: bool = True) -> AppendFile:
    """Make an empty journal in a folder that is there; its name becomes durable with its first line. Raises StorageFailed,
    also if it exists."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        os.close(os.open(path, flags, 0o600))
    except FileNotFoundError as error:
        raise gone(path, essential=essential) from error
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be made: {reason(error)}.") from error
    return AppendFile(path, 0, fresh=True, essential=essential)


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UnknownSession(f"There is no session {path.stem}.") from None
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be opened: {reason(error)}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageFailed(f"{path.name} could not be opened: it is not a file.")
    return descriptor


def _set_aside(descriptor: int, path: Path, quarantine: Path, begin: int, end: int) -> None:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    write_new(quarantine / f"{path.stem}-{now}-{begin}.tail", lines_from(descriptor, begin, end))


def _cut(descriptor: int, path: Path, length: int) -> None:
    os.ftruncate(descriptor, length)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise sync_failed(path, error) from error


def _settle(descriptor: int, path: Path, end: int, *, trusted: bool) -> None:
    if not trusted and end:
        begin = min(max(0, end - SUSPECT), start_of_line(descriptor, end))
        _write_again(descriptor, os.pread(descriptor, end - begin, begin), begin)
    with contextlib.nullcontext() if trusted else open_folder(path.parent) as folder:
        try:
            sync_content(descriptor)
            if folder is not None:
                os.fsync(folder)
        except OSError as error:
            raise sync_failed(path, error) from error


def _write_again(descriptor: int, content: bytes, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        offset += count
        rest = rest[count:]


def report_damage(damage: JournalDamaged, quarantine: Path) -> None:
    """Leave a word for the operator, once for each place of damage. The journal itself stays as it is."""
    word = {
        "journal": str(damage.path),
        "line": damage.line,
        "reason": damage.reason,
        "good_seq": damage.good_seq,
        "good_end": damage.good_end,
        "found": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = quarantine / f"{damage.path.stem}-line-{damage.line}.damage"
    try:
        write_new(path, [json.dumps(word, indent=2).encode(), b"\n"])
    except FileExistsError:
        return
    except OSError as error:  # a full disk must not hide the damage, which the caller hears of anyway
        damage.add_note(f"no report could be written to {path}: {reason(error)}")
