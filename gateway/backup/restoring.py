"""Restores a home from a backup: everything is verified beside the home, and gets its name only when it is whole.

All functions block.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.backup.backup_folder import copied_log
from gateway.backup.manifest import (
    CONTENT,
    MANIFEST,
    BackupRefused,
    FileEntry,
    Manifest,
    decode_manifest,
    ledger_of,
    read_manifest,
    sha256_of,
)
from gateway.support.home import Home
from gateway.support.storage import journals_in
from sessions.events.errors import JournalDamaged, SessionsError
from sessions.files.fsync import make_folder, sync_folder
from sessions.store.protocols import START
from sessions.store.reading import StoredLog, verify_lines

_BLOCK = 1024 * 1024
LONGEST_MANIFEST = 1 << 30


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """A restored home: when the backup began, and the numbers of logs and files."""

    home: str
    began: str
    logs: int
    files: int
    erased: int = 0
    remarks: tuple[str, ...] = ()


def verify_backup(folder: Path) -> tuple[Manifest, list[str]]:
    """Return the manifest of a backup folder, and a sentence for each fault in its content.

    Raises BackupRefused if there is no backup, OSError.
    """
    manifest = _manifest_in(folder)
    faults = []
    for entry in manifest.logs:
        try:
            with copied_log(folder, entry).read() as lines:
                whole = verify_lines(lines, START, lambda _: None, entry.bytes) == entry.position
        except SessionsError:
            whole = False
        if not whole:
            faults.append(f"{entry.path} differs from what was copied.")
    known: dict[str, bool] = {}
    for file in manifest.files:
        if not file.link and file.sha256 not in known:
            known[file.sha256] = _is_whole(folder / CONTENT / file.sha256, file)
        if not file.link and not known[file.sha256]:
            faults.append(f"{file.path} differs from what was copied.")
    return manifest, faults


def unpack_folder(folder: Path, root: Path) -> Manifest:
    """Write the home of a backup folder to `root`, an empty folder, and verify it. Raises BackupRefused, OSError."""
    manifest = _manifest_in(folder)
    for entry in manifest.logs:
        target = _target(root, entry.path)
        with _open_copy(folder / entry.file) as copy, target.open("xb") as log:
            _copy_exactly(copy, log, entry.bytes)
    for file in manifest.files:
        if not file.link:
            shutil.copyfile(folder / CONTENT / file.sha256, _target(root, file.path))
    _complete(root, manifest)
    return manifest


def unpack_archive(archive: BinaryIO, root: Path) -> Manifest:
    """Write the home of a tar archive to `root`, an empty folder, and verify it. Raises BackupRefused, OSError."""
    content = b""
    try:
        with tarfile.open(fileobj=archive, mode="r|") as members:
            for member in members:
                if member.name == MANIFEST and member.size <= LONGEST_MANIFEST:
                    if content:  # a file of the home has this name; the manifest is the last member
                        _target(root, MANIFEST).write_bytes(content)
                    content = _bytes_of(members, member)
                elif member.isreg():
                    with _target(root, member.name).open("xb") as file, _content_of(members, member) as copy:
                        shutil.copyfileobj(copy, file, _BLOCK)
    except (tarfile.TarError, EOFError) as error:
        raise BackupRefused(f"The archive cannot be read: {error}. Nothing was restored.") from error
    if not content:
        raise BackupRefused("The archive has no manifest at its end; it is incomplete. Nothing was restored.")
    manifest = decode_manifest(content)
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    if extra := sorted(found - manifest.paths):
        raise BackupRefused(f"The archive has {extra[0]!r}, which its manifest does not name. Nothing was restored.")
    _complete(root, manifest)
    return manifest


@contextmanager
def new_home(home: Home) -> Iterator[Path]:
    """Return an empty folder that becomes the home at the end. Raises BackupRefused if the home exists."""
    root = home.root
    if root.is_symlink() or (root.exists() and (not root.is_dir() or any(root.iterdir()))):
        raise BackupRefused(f"{root} exists; a home is never overwritten. Move it away, or restore to another --home.")
    draft = root.with_name(f"{root.name}.restoring")
    if draft.exists():
        shutil.rmtree(draft)  # left by an interrupted restore
    make_folder(draft)
    try:
        yield draft
        _sync_tree(draft)
        if root.exists():
            root.rmdir()
        draft.rename(root)
        sync_folder(root.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def newest_ledger(backup: Path) -> Path | None:
    """Return the log of the erasures beside a backup, or None."""
    path = ledger_of(backup)
    return path if path.is_file() else None


def _manifest_in(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    if manifest is None:
        raise BackupRefused(f"{folder} has no {MANIFEST}, so it is no backup that was completed.")
    return manifest


def _complete(root: Path, manifest: Manifest) -> None:
    """Verify the logs and files below `root`, and set modes and links."""
    for entry in manifest.logs:
        place = root / entry.path
        place.chmod(0o600)
        try:
            verified = StoredLog(journals_in(place.parent), place.name.removesuffix(".jsonl")).verify()
        except (SessionsError, JournalDamaged) as error:
            raise BackupRefused(f"{entry.path} in the backup is damaged ({error}); nothing was restored.") from error
        if verified.last != entry.position or verified.torn:
            raise BackupRefused(f"{entry.path} differs from what was backed up; nothing was restored.")
    for file in manifest.files:
        place = root / file.path
        if file.link:
            continue
        if not _is_whole(place, file):
            raise BackupRefused(f"{file.path} differs from what was backed up; nothing was restored.")
        place.chmod(file.mode)
        os.utime(place, ns=(file.changed, file.changed))
    for file in manifest.files:
        if file.link:  # last, so that nothing is written through one
            _target(root, file.path).symlink_to(file.link)


def _is_whole(place: Path, file: FileEntry) -> bool:
    try:
        with place.open("rb") as content:
            return os.fstat(content.fileno()).st_size == file.bytes and sha256_of(content) == file.sha256
    except FileNotFoundError:
        return False


def _target(root: Path, path: str) -> Path:
    """Return the place of a file below `root`, whose folder is made. Raises BackupRefused if it would be elsewhere."""
    place = root / path
    if os.path.isabs(path) or ".." in Path(path).parts or not place.parent.resolve().is_relative_to(root.resolve()):
        raise BackupRefused(f"The backup names {path!r}, which is outside of a home; nothing was restored.")
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def _open_copy(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise BackupRefused(f"{path} is missing in the backup; nothing was restored.") from error


def _copy_exactly(copy: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        piece = copy.read(min(size, _BLOCK))
        if not piece:
            raise BackupRefused("A log in the backup is shorter than it was; nothing was restored.")
        target.write(piece)
        size -= len(piece)


@contextmanager
def _content_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[BinaryIO]:
    content = archive.extractfile(member)
    assert content is not None, "a regular member"
    with content:
        yield content  # type: ignore[misc]  # a reader of bytes


def _bytes_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    with _content_of(archive, member) as content:
        return content.read()


def _sync_tree(root: Path) -> None:
    """Make everything below a folder durable."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        sync_folder(Path(folder))
