"""The manifest of a backup: every log and file in it, with what is needed to verify it.

A log is described by the position of its last line, since the chain of its sums covers everything before; a file by its
SHA-256.
"""

from __future__ import annotations

from hashlib import file_digest
from io import BufferedReader
from pathlib import Path, PurePosixPath

import msgspec

from gateway.support.errors import GatewayError
from sessions.store.protocols import Position

FORMAT = 1
"""The version of the format."""

MANIFEST = "manifest.json"
"""The manifest's name, in a folder and at the end of a tar archive."""

CONTENT = "content"
"""The folder of the files of a backup folder, which are named by their SHA-256."""

LOGS = "logs"
"""The folder of the logs of a backup folder."""

ERASED = "erased.jsonl"
"""The log of deletions and erasures in a backup folder, which may be newer than the backup; see `ledger_of`."""


class BackupRefused(GatewayError):
    """A backup that cannot be made, read or restored; nothing was changed."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A log: its `path` in the home, the `file` in the backup folder, and the position of its last line."""

    path: str
    events: int
    bytes: int
    sum: str
    file: str = ""

    @property
    def position(self) -> Position:
        """The position of the last line."""
        return Position(seq=self.events, offset=self.bytes, sum=self.sum.encode())


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file: its `path` in the home, its size, SHA-256 and mode, and when it was changed, in nanoseconds since the epoch.

    A symbolic link has its target in `link`, and no content.
    """

    path: str
    bytes: int
    sha256: str
    mode: int = 0o600
    changed: int = 0
    link: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in a backup. `home` is the folder that was copied; `began` and `ended` are RFC 3339 in UTC. `remarks` are
    sentences about what is not in it, or was damaged already."""

    format: int
    home: str
    version: str
    began: str
    ended: str
    secrets: bool
    logs: tuple[LogEntry, ...]
    files: tuple[FileEntry, ...]
    remarks: tuple[str, ...] = ()

    @property
    def paths(self) -> set[str]:
        """The paths of everything in the home."""
        return {entry.path for entry in self.logs} | {file.path for file in self.files}

    @property
    def size(self) -> int:
        """The bytes of everything."""
        return sum(entry.bytes for entry in self.logs) + sum(file.bytes for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(content: bytes) -> Manifest:
    """Return a manifest whose paths stay inside the home. Raises BackupRefused."""
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BackupRefused(f"The manifest of the backup cannot be read: {error}.") from error
    if manifest.format > FORMAT:
        raise BackupRefused(f"The backup has format {manifest.format}; this version reads up to {FORMAT}. Upgrade Exuvia.")
    stored = {entry.file for entry in manifest.logs if entry.file}
    if outside := next((path for path in sorted(manifest.paths | stored) if not _is_inside(path)), None):
        raise BackupRefused(f"The backup names {outside!r}, which is outside of a home; nothing was restored.")
    return manifest


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a backup folder; None if there is none. Raises BackupRefused, OSError."""
    try:
        return decode_manifest((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None


def ledger_of(place: Path) -> Path:
    """Return the place of the log of deletions of a backup: in its folder, or beside an archive and named after it, since
    archives of other homes may be in the same folder."""
    return place / ERASED if place.is_dir() else place.with_name(f"{place.name.partition('.')[0]}-{ERASED}")


def sha256_of(file: BufferedReader) -> str:
    """Return the SHA-256 of the rest of a file in hexadecimal."""
    return file_digest(file, "sha256").hexdigest()


def _is_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return path not in {"", "."} and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path
