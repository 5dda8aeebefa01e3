"""Backups as one stream: a tar archive of the home, with the manifest as its last member, encrypted by age if wanted.

All functions block.
"""

from __future__ import annotations

import io
import os
import secrets
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from gateway import VERSION
from gateway.backup.backup_folder import BackupResult, copy_content
from gateway.backup.home_content import SQLITE, HomeFile, HomeLog, files_of, logs_of
from gateway.backup.manifest import FORMAT, MANIFEST, BackupRefused, FileEntry, LogEntry, Manifest, encode_manifest
from gateway.support.home import Home
from sessions.events.errors import JournalDamaged, UnknownSession
from sessions.files.fsync import sync_content, sync_folder
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Lines
from sessions.store.reading import verify_lines

_AGE = "age"


def stream_backup(home: Home, out: BinaryIO, now: Callable[[], datetime], *, with_secrets: bool) -> BackupResult:
    """Write a backup as a tar archive. Raises OSError, SessionsError."""
    began, remarks = stamp(now()), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="exuvia-backup-") as drafts,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        logs = [each for log in logs_of(home) if (each := _add_log(archive, log, remarks)) is not None]
        found = files_of(home, secrets=with_secrets)
        files = [entry for file in found if (entry := _add_file(archive, file, remarks, Path(drafts))) is not None]
        manifest = Manifest(
            format=FORMAT,
            home=str(home.root),
            version=VERSION,
            began=began,
            ended=stamp(now()),
            secrets=with_secrets,
            logs=tuple(logs),
            files=tuple(files),
            remarks=tuple(remarks),
        )
        content = encode_manifest(manifest)
        archive.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
    size = manifest.size
    return BackupResult(logs=len(logs), files=len(files), copied=size, bytes=size, remarks=manifest.remarks)


def _add_log(archive: tarfile.TarFile, log: HomeLog, remarks: list[str]) -> LogEntry | None:
    try:
        with log.log.read() as lines:
            try:
                last = verify_lines(lines, START, lambda _: None)
            except JournalDamaged as damage:
                remarks.append(f"{log.path} is damaged in line {damage.line}; only what is before it is in the backup.")
                last = verify_lines(lines, START, lambda _: None, damage.good_end)
            if last.seq == 0:
                return None
            archive.addfile(_member(log.path, last.offset), _Joined(lines, last.offset))
    except UnknownSession:
        return None  # deleted meanwhile
    return LogEntry(path=log.path, events=last.seq, bytes=last.offset, sum=last.sum.decode())


class _Joined(io.RawIOBase):
    """The lines of a log as a file, for tarfile."""

    def __init__(self, lines: Lines, size: int) -> None:
        self._lines = lines.forward(START, size)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        pieces, length = [self._rest], len(self._rest)
        while length < size and (line := next(self._lines, b"")):
            pieces.append(line)
            length += len(line)
        content = b"".join(pieces)
        self._rest = content[size:]
        return content[:size]


class _Hashed(io.RawIOBase):
    """A file of a known size that is hashed while it is read. If it was shortened meanwhile, the rest is read as zeros."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = sha256()
        self.cut = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        if len(content) < size:
            self.cut = True
            content += bytes(size - len(content))
        self.hash.update(content)
        return content


def _add_file(archive: tarfile.TarFile, file: HomeFile, remarks: list[str], drafts: Path) -> FileEntry | None:
    try:
        if file.place.is_symlink():
            member = _member(file.path, 0)
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(file.place)
            archive.addfile(member)
            return FileEntry(path=file.path, bytes=0, sha256="", link=member.linkname)
        opened = _opened_copy(file, drafts, remarks) if file.path.endswith(SQLITE) else file.place.open("rb")
    except FileNotFoundError:
        return None
    except PermissionError as error:
        remarks.append(f"{file.path} cannot be read ({error.strerror}) and is not in the backup.")
        return None
    with opened:
        size, mode = os.fstat(opened.fileno()).st_size, file.found.st_mode & 0o777
        content = _Hashed(opened)
        archive.addfile(_member(file.path, size, mode), content)
    if content.cut:
        remarks.append(f"{file.path} was shortened while it was read; what is missing is zeros in the backup.")
    digest = content.hash.hexdigest()
    return FileEntry(path=file.path, bytes=size, sha256=digest, mode=mode, changed=file.found.st_mtime_ns)


def _opened_copy(file: HomeFile, drafts: Path, remarks: list[str]) -> BinaryIO:
    """Open a copy of a database as SQLite sees it, which has no name any more. Raises OSError."""
    draft = drafts / "copy"
    try:
        copy_content(file, draft, remarks)
        return draft.open("rb")
    finally:
        draft.unlink(missing_ok=True)


def _member(path: str, size: int, mode: int = 0o600) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.size, member.mode = size, mode
    return member


@contextmanager
def archive_in(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Open a new file in a folder for writing; it gets its name when it is complete and durable. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.{secrets.token_hex(4)}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            yield file
            file.flush()
            sync_content(file.fileno())
        draft.rename(folder / name)
        sync_folder(folder)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def encrypting(recipients: Sequence[str], out: BinaryIO) -> Iterator[BinaryIO]:
    """Encrypt for these recipients what is written. Raises BackupRefused if age is not installed or fails."""
    arguments = [f"--recipient={recipient}" for recipient in recipients]
    with _age(["--encrypt", *arguments], stdin=subprocess.PIPE, stdout=out) as process:
        assert process.stdin is not None
        yield process.stdin  # type: ignore[misc]  # a pipe of bytes
        process.stdin.close()


@contextmanager
def decrypting(identity: Path, content: BinaryIO) -> Iterator[BinaryIO]:
    """Decrypt a stream with the identity in a file. Raises BackupRefused if age is not installed or fails."""
    with _age(["--decrypt", f"--identity={identity}"], stdin=content, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout  # type: ignore[misc]  # a pipe of bytes
        process.stdout.read()


@contextmanager
def _age(arguments: Sequence[str], stdin: BinaryIO | int, stdout: BinaryIO | int) -> Iterator[subprocess.Popen[bytes]]:
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell, and recipients cannot be options
            [_AGE, *arguments], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
        )
    except FileNotFoundError as error:
        raise BackupRefused(
            "age is not installed; it encrypts and decrypts backups (https://age-encryption.org)."
        ) from error
    with process:
        try:
            yield process
        except BrokenPipeError:
            pass  # age says why
        except BaseException:
            process.kill()
            raise
        assert process.stderr is not None
        said = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        if process.wait() != 0:
            raise BackupRefused(f"age failed: {said[0] if said else process.returncode}.")
