"""Opening a journal for appending: a torn tail left by a crash is removed; anything else is reported as damage."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.append_file import AppendFile, error_text, missing_file, sync_failed
from sessions.files.fsync import open_folder, sync_content, sync_folder, write_new
from sessions.files.line_reader import lines_from, start_of_line
from sessions.files.verify import damage_after, verify_lines, verify_position
from sessions.store.protocols import Position

SUSPECT = 256 * 1024
"""Bytes at the end that may have been lost in a failed sync of an earlier process, though they can still be read."""


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
    """Verify a journal after a position, remove a torn tail, and make the rest durable. Blocks.

    Args:
        path: The journal.
        quarantine: The folder for torn tails and damage reports.
        after: The position after which lines are verified.
        fold: Called with each of those lines.
        trusted: Whether the file is known to be as it was when it was last made durable; one sync suffices then. Otherwise
            its end is rewritten first, because after a failed sync the kernel marks pages as clean that never reached the
            disk.
        least: The seq up to which it was acknowledged. A journal that ends before is damaged and left unchanged.
        essential: Whether a missing folder is a fatal failure.

    Returns:
        The file, closed, and its last position.

    Raises:
        UnknownSession: There is no such journal.
        StorageFailed: It cannot be opened.
        JournalDamaged: It does not verify; a report was written to `quarantine`.
    """
    descriptor = _open(path)
    try:
        size = os.fstat(descriptor).st_size
        verify_position(descriptor, path, after, size)
        last = verify_lines(descriptor, path, after, size, fold)
        if last.seq < least:
            raise damage_after(
                path,
                last,
                f"acknowledged events are missing: it ends with event {last.seq}, but event {least} was acknowledged",
            )
        if last.offset < size:
            _set_aside(descriptor, path, quarantine, last.offset, size)
            _cut(descriptor, path, last.offset)
        _settle(descriptor, path, last.offset, trusted=trusted)
    except JournalDamaged as damage:
        report_damage(damage, quarantine)
        raise
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be opened: {error_text(error)}.") from error
    finally:
        os.close(descriptor)
    return AppendFile(path, last.offset, fresh=False, essential=essential), last


def remove_empty(path: Path, quarantine: Path) -> None:
    """Remove a journal without a complete line, after copying its bytes to `quarantine`. Blocks; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if size := os.fstat(descriptor).st_size:
            _set_aside(descriptor, path, quarantine, 0, size)
        path.unlink()
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def create_to_append(path: Path, *, essential: bool = True) -> AppendFile:
    """Create an empty journal in an existing folder; its directory entry becomes durable with its first line. Raises
    StorageFailed, also if it exists."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        os.close(os.open(path, flags, 0o600))
    except FileNotFoundError as error:
        raise missing_file(path, essential=essential) from error
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be created: {error_text(error)}.") from error
    return AppendFile(path, 0, fresh=True, essential=essential)


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UnknownSession(f"Unknown session {path.stem}.") from None
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be opened: {error_text(error)}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageFailed(f"{path.name} could not be opened: it is not a regular file.")
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
    """Write a report for the operator, once for each place of damage. The journal itself is left unchanged."""
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
    except OSError as error:  # a full disk must not hide the damage itself
        damage.add_note(f"no report could be written to {path}: {error_text(error)}")
