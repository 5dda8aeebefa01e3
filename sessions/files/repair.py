"""Opening a journal for appending: a torn tail left by a crash is removed; anything else is reported as damage."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.append_file import AppendFile, error_text, missing_file, sync_failed
from sessions.files.fsync import open_folder, sync_content, sync_folder, write_new
from sessions.files.journal_folder import LARGEST_BLOCK, FileLines
from sessions.store.protocols import START, Position
from sessions.store.reading import damage_after, verify_lines, verify_position

SUSPECT = 256 * 1024
"""Bytes at the end that may have been lost in a failed sync of an earlier process, though they can still be read."""


def open_to_append(
    path: Path,
    quarantine: Path,
    after: Position,
    fold: Callable[[bytes], None],
    *,
    unchanged: bool,
    least: int = 0,
    essential: bool = True,
) -> tuple[AppendFile, Position]:
    """Verify a journal after a position, remove a torn tail, and make the rest durable. Blocks.

    Args:
        path: The journal.
        quarantine: The folder for torn tails and damage reports.
        after: The position after which lines are verified.
        fold: Called with each of those lines.
        unchanged: Whether the file is known to be as it was when it was last made durable; then one sync suffices. Otherwise
            its end is rewritten first: after a failed sync, the kernel marks pages as clean that never reached the disk.
        least: The seq up to which it was acknowledged. A journal that ends before is damaged and left unchanged; so is a
            missing one.
        essential: Whether a missing folder is a fatal failure.

    Returns:
        The file, closed, and its last position.

    Raises:
        UnknownSession: There is no such journal, and `least` is 0.
        StorageFailed: It cannot be opened.
        JournalDamaged: It does not verify, or is missing; a report was written to `quarantine`.
    """
    try:
        descriptor = _open(path)
    except UnknownSession as unknown:
        if not least:
            raise
        raise _missing(path, quarantine, essential=essential) from unknown
    try:
        lines = FileLines(descriptor, path.stem)
        verify_position(lines, after)
        last = verify_lines(lines, after, fold)
        if last.seq < least:
            raise damage_after(
                path.stem,
                last,
                f"acknowledged events are missing: it ends with event {last.seq}, but event {least} was acknowledged",
            )
        if last.offset < lines.size:
            _set_aside(descriptor, path, quarantine, last.offset, lines.size)
            _cut(descriptor, path, last.offset)
        _make_durable(lines, descriptor, path, last.offset, unchanged=unchanged)
    except JournalDamaged as damage:
        report_damage(damage, str(path), quarantine)
        raise
    except OSError as error:
        raise StorageFailed(f"{path.name} could not be opened: {error_text(error)}.") from error
    finally:
        os.close(descriptor)
    return AppendFile(path, last.offset, fresh=False, essential=essential), last


def remove_empty(path: Path, quarantine: Path) -> None:
    """Remove a journal without a complete line, after copying its bytes to `quarantine`. Blocks; raises JournalDamaged,
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        lines = FileLines(descriptor, path.stem)
        if verify_lines(lines, START, lambda _: None) != START:
            return
        if lines.size:
            _set_aside(descriptor, path, quarantine, 0, lines.size)
        path.unlink()
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def remove_journal(path: Path, quarantine: Path, *, drafts: str) -> None:
    """Remove a journal with what `quarantine` has of it, durably, and files with the suffix `drafts`, which an interrupted
    copy has left. Blocks; raises OSError."""
    left = [*quarantine.glob(f"{path.stem}-*"), *(path.parent.glob(f"*{drafts}") if drafts else ())]
    for each in (path, *left):
        each.unlink(missing_ok=True)
    for folder in {each.parent for each in (path, *left)}:
        sync_folder(folder)


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
    write_new(quarantine / f"{path.stem}-{now}-{begin}.tail", bytes_of(descriptor, begin, end))


def bytes_of(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file between two offsets. Raises OSError if it is shorter."""
    while begin < end:
        block = os.pread(descriptor, min(LARGEST_BLOCK, end - begin), begin)
        if not block:
            raise OSError(errno.EIO, "the file was truncated by another process")
        yield block
        begin += len(block)


def _cut(descriptor: int, path: Path, length: int) -> None:
    os.ftruncate(descriptor, length)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise sync_failed(path, error) from error


def _make_durable(lines: FileLines, descriptor: int, path: Path, end: int, *, unchanged: bool) -> None:
    if not unchanged and end:
        begin = min(max(0, end - SUSPECT), lines.start_of_line(end))
        _write_again(descriptor, os.pread(descriptor, end - begin, begin), begin)
    with contextlib.nullcontext() if unchanged else open_folder(path.parent) as folder:
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


def _missing(path: Path, quarantine: Path, *, essential: bool) -> JournalDamaged | StorageFailed:
    """Write a report of a missing journal to `quarantine`, and return the error for it."""
    if not path.parent.is_dir():
        return missing_file(path, essential=essential)
    damage = JournalDamaged(path.stem, 0, "it is missing, including all acknowledged events")
    report_damage(damage, str(path), quarantine)
    return damage


def report_damage(damage: JournalDamaged, location: str, quarantine: Path) -> None:
    """Write a report for the operator, once for each place of damage. The journal itself is left unchanged."""
    word = {
        "journal": location,
        "line": damage.line,
        "reason": damage.reason,
        "good_seq": damage.good_seq,
        "good_end": damage.good_end,
        "found": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = quarantine / f"{damage.session}-line-{damage.line}.damage"
    try:
        write_new(path, [json.dumps(word, indent=2).encode(), b"\n"])
    except FileExistsError:
        return
    except OSError as error:  # a full disk must not hide the damage itself
        damage.add_note(f"no report could be written to {path}: {error_text(error)}")
