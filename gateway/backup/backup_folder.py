"""Incremental backups in a folder.

    manifest.json      what the backup holds; replaced at the end, so a crash leaves the previous backup whole
    logs/…             the logs: their new lines are appended, beyond the length that the manifest states
    content/<sha256>   all other files
    erased.jsonl       the newest log of deletions and erasures

All functions block. The files of the home are only read, so the gateway may be running.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from gateway import VERSION
from gateway.backup.home_content import LEFT_BY_SQLITE, SQLITE, HomeFile, HomeLog, files_of, logs_of
from gateway.backup.manifest import (
    CONTENT,
    ERASED,
    FORMAT,
    LOGS,
    MANIFEST,
    BackupRefused,
    FileEntry,
    LogEntry,
    Manifest,
    encode_manifest,
    read_manifest,
    sha256_of,
)
from gateway.support.home import Home
from gateway.support.storage import journals_in
from sessions.events.errors import HomeLocked, JournalDamaged, UnknownSession
from sessions.files.fsync import make_folder, replace_file, sync_content, sync_folder
from sessions.files.home_lock import HomeLock
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Lines, Position
from sessions.store.reading import StoredLog, verify_lines, verify_position

_LOCK = "lock"
_DRAFT = ".draft-"
_BLOCK = 1024 * 1024

LONGEST_REST = 0.5
"""The most seconds that a backup rests after a copy."""


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup: the numbers of logs and files in it, the bytes that were copied now, those in the whole backup, and
    remarks on what is damaged or not in it."""

    logs: int
    files: int
    copied: int
    bytes: int
    remarks: tuple[str, ...]


def back_up(home: Home, folder: Path, now: Callable[[], datetime], *, with_secrets: bool) -> BackupResult:
    """Bring the backup in a folder up to date, and verify what was copied.

    Args:
        home: The home, of which nothing is changed.
        folder: The folder, which need not exist.
        now: Returns the current time in UTC.
        with_secrets: Whether tokens and keys are copied too.

    Raises:
        BackupRefused: The folder is not one of backups of this home, or another backup writes to it.
        OSError, SessionsError: Something cannot be read or written; the previous backup is whole.
    """
    with _locked(home, folder) as previous:
        began = stamp(now())
        writing = _Writing(folder, previous)
        logs = [each for log in logs_of(home) if (each := writing.add_log(log)) is not None]
        files = [entry for file in files_of(home, secrets=with_secrets) if (entry := writing.add_file(file)) is not None]
        writing.finish()
        manifest = Manifest(
            format=FORMAT,
            home=str(home.root),
            version=VERSION,
            began=began,
            ended=stamp(now()),
            secrets=with_secrets,
            logs=tuple(logs),
            files=tuple(files),
            remarks=tuple(writing.remarks),
        )
        _publish(folder, manifest, home)
        _remove_unused(folder, manifest)
    return BackupResult(
        logs=len(logs), files=len(files), copied=writing.copied, bytes=manifest.size, remarks=manifest.remarks
    )


@contextmanager
def _locked(home: Home, folder: Path) -> Iterator[Manifest | None]:
    """Lock the folder of a backup, and return the manifest of the previous one."""
    place, root = folder.resolve(), home.root.resolve()
    if place.is_relative_to(root) or root.is_relative_to(place):
        raise BackupRefused(f"{folder} overlaps with the home; choose a folder elsewhere, best on another disk.")
    previous = read_manifest(folder) if folder.is_dir() else None
    begun = {_LOCK, LOGS, CONTENT, ERASED}
    if previous is None and folder.is_dir() and not begun.issuperset(os.listdir(folder)):
        raise BackupRefused(f"{folder} holds something else than a backup; choose an empty folder.")
    if previous is not None and previous.home != str(home.root):
        raise BackupRefused(f"{folder} is a backup of {previous.home}; choose another folder for {home.root}.")
    make_folder(folder)
    try:
        with HomeLock(folder / _LOCK):
            yield read_manifest(folder)
    except HomeLocked as locked:
        raise BackupRefused(f"Another backup writes to {folder}; try again when it is done.") from locked


class _Writing:
    """A backup that is being written beside the previous one."""

    def __init__(self, folder: Path, previous: Manifest | None) -> None:
        self.copied = 0
        self.remarks: list[str] = []
        self._folder = folder
        self._logs = {entry.path: entry for entry in previous.logs} if previous else {}
        self._files = {entry.path: entry for entry in previous.files} if previous else {}
        self._held = {entry.sha256 for entry in self._files.values()}
        self._touched = {folder}
        make_folder(folder / CONTENT)
        make_folder(folder / LOGS)

    def add_log(self, log: HomeLog) -> LogEntry | None:
        """Append the new lines of a log to its copy, or copy all of it if it was rewritten; None if it was deleted, or is
        without a line."""
        known = self._logs.get(log.path)
        try:
            with log.log.read() as lines:
                if known is not None and self._continues(lines, known):
                    return self._appended(log, lines, known.file, known.position)
                return self._appended(log, lines, self._free_name(log.path), START)
        except UnknownSession:
            return None  # deleted meanwhile

    def add_file(self, file: HomeFile) -> FileEntry | None:
        """Copy a file unless the previous backup has it: one of the same size and time of change. None if it was deleted.

        A database is always copied: what was committed to its WAL changes neither its size nor its time.
        """
        path, found = file.path, file.found
        try:
            if os.path.islink(file.place):
                return FileEntry(path=path, bytes=0, sha256="", link=os.readlink(file.place))
            known = self._files.get(path)
            unchanged = known is not None and (known.bytes, known.changed) == (found.st_size, found.st_mtime_ns)
            if unchanged and not path.endswith(SQLITE):
                return known
            return self._stored(file)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            self.remarks.append(f"{path} cannot be read ({error.strerror}) and is not in the backup.")
            return None

    def finish(self) -> None:
        """Make the names of all new files durable. Raises OSError."""
        for folder in sorted(self._touched):
            sync_folder(folder)

    def _continues(self, lines: Lines, known: LogEntry) -> bool:
        """Return True if a log begins with the copy, and the copy has its length."""
        try:
            verify_position(lines, known.position)
            return (self._folder / known.file).stat().st_size >= known.bytes
        except (JournalDamaged, FileNotFoundError):
            return False

    def _appended(self, log: HomeLog, lines: Lines, name: str, after: Position) -> LogEntry | None:
        target = self._folder / name
        try:
            last = self._copy_lines(lines, target, after)
        except JournalDamaged as damage:
            self.remarks.append(f"{log.path} is damaged in line {damage.line}; only what is before it is in the backup.")
            last = self._copy_lines(lines, target, after, damage.good_end) if damage.good_end > after.offset else after
        if last.seq == 0:
            target.unlink(missing_ok=True)
            return None
        return LogEntry(path=log.path, file=name, events=last.seq, bytes=last.offset, sum=last.sum.decode())

    def _copy_lines(self, lines: Lines, target: Path, after: Position, upto: int | None = None) -> Position:
        """Append the lines after a position to a copy, durably, read them again and verify them."""
        if after != START and after.offset == (lines.size if upto is None else upto):
            return after
        began = time.perf_counter()
        make_folder(target.parent)
        self._touched.add(target.parent)
        try:
            last = _append_lines(lines, target, after, upto)
        except OSError as error:  # which reading the log would report as its own
            raise BackupRefused(f"{target} cannot be written ({error.strerror}); the previous backup is whole.") from error
        with journals_in(target.parent).read(target.name.removesuffix(".jsonl")) as written:
            if verify_lines(written, after, lambda _: None) != last:
                raise BackupRefused(f"{target} differs from what was written to it; is the disk of the backup well?")
        self.copied += last.offset - after.offset
        _rest(began)
        return last

    def _free_name(self, path: str) -> str:
        """Return a name for a copy that is not that of another one: the previous backup must stay whole."""
        name = f"{LOGS}/{path}"
        used = {entry.file for entry in self._logs.values()}
        return name if name not in used else f"{name.removesuffix('.jsonl')}-{secrets.token_hex(4)}.jsonl"

    def _stored(self, file: HomeFile) -> FileEntry:
        """Copy a file under its hash, durably, and verify the copy."""
        draft, began = self._folder / CONTENT / f"{_DRAFT}{secrets.token_hex(8)}", time.perf_counter()
        try:
            copy_content(file, draft, self.remarks)
            with draft.open("rb") as copy:
                digest = sha256_of(copy)
                size = copy.tell()
                if digest not in self._held:
                    sync_content(copy.fileno())
            if digest not in self._held:
                draft.rename(draft.with_name(digest))
                self._held.add(digest)
                self._touched.add(draft.parent)
                self.copied += size
        finally:
            draft.unlink(missing_ok=True)
        mode, changed = file.found.st_mode & 0o777, file.found.st_mtime_ns
        _rest(began)
        return FileEntry(path=file.path, bytes=size, sha256=digest, mode=mode, changed=changed)


def _rest(began: float) -> None:
    """Do nothing for as long as a copy took: its syncs must not keep the disk from the gateway all the time."""
    time.sleep(min(time.perf_counter() - began, LONGEST_REST))


def _append_lines(lines: Lines, target: Path, after: Position, upto: int | None) -> Position:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(target, flags, 0o600), "r+b") as file:
        file.truncate(after.offset)  # what an interrupted backup has appended
        file.seek(after.offset)
        last = verify_lines(lines, after, file.write, upto)  # type: ignore[arg-type]  # the count is not needed
        file.flush()
        sync_content(file.fileno())
    return last


def copy_content(file: HomeFile, draft: Path, remarks: list[str]) -> None:
    """Copy a file; a database as SQLite sees it, since another process may write it. Raises OSError."""
    place = file.place
    draft.touch(mode=0o600)
    if place.name.endswith(SQLITE):
        try:
            with (
                closing(sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(draft)) as copy,
            ):
                source.backup(copy)
            return
        except sqlite3.DatabaseError as error:
            if any(os.path.exists(f"{place}{left}") for left in LEFT_BY_SQLITE):
                remarks.append(
                    f"{file.path} cannot be read by SQLite ({error}); it is in the backup without its WAL or journal, and"
                    " may be damaged there."
                )
    with place.open("rb") as content, draft.open("wb") as copied:
        shutil.copyfileobj(content, copied, _BLOCK)


def _publish(folder: Path, manifest: Manifest, home: Home) -> None:
    """Replace the manifest, after the log of the erasures. Raises OSError."""
    ledger = next((entry for entry in manifest.logs if entry.path == home.deletions.name), None)
    if ledger is not None:
        with (folder / ledger.file).open("rb") as file:
            replace_file(folder / ERASED, file.read(ledger.bytes))
    replace_file(folder / MANIFEST, encode_manifest(manifest))


def _remove_unused(folder: Path, manifest: Manifest) -> None:
    """Remove what the manifest does not name. Raises OSError."""
    used = {entry.file for entry in manifest.logs} | {f"{CONTENT}/{entry.sha256}" for entry in manifest.files}
    for top in (LOGS, CONTENT):
        for path in (folder / top).rglob("*"):
            if path.is_file() and path.relative_to(folder).as_posix() not in used:
                path.unlink()
    for entry in manifest.logs:
        with (folder / entry.file).open("r+b") as log:
            log.truncate(entry.bytes)


def copied_log(folder: Path, entry: LogEntry) -> StoredLog:
    """Return the copy of a log in a backup folder."""
    place = folder / entry.file
    return StoredLog(journals_in(place.parent), place.name.removesuffix(".jsonl"))
