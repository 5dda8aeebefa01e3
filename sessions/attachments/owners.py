"""Owners of attachments: one small record for each person and content, beside the contents.

Contents are stored once, by hash, and a hash is no secret: it may be guessed, or computed from a file that somebody else has
too. So a hash alone gives no access, neither to read nor to use in a message; the person needs a record
`owners/<person>/<sha256>` of having sent it. It describes the file, so that the hash suffices to refer to it.

A record is called `<sha256>.new` until an event in a journal refers to the attachment; only such records are ever removed.
The other records are derived: lost ones are restored from the journals.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote_to_bytes

import msgspec

from sessions.events.messages import Attachment
from sessions.files.fsync import sync_folder, write_new

NEW = ".new"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")


class Owners:
    """The records below one folder. All methods block, and raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lock = threading.Lock()
        """Held while a record is used or removed, so that nothing is removed that a message is about to use."""

    def record(self, person: str, attachment: Attachment, *, named: bool = False) -> None:
        """Record, durably, that a person sent an attachment. `named` is True if a journal refers to it."""
        with self.lock:
            place = self._place(person, attachment.sha256)
            if _read(place) is not None:
                return
            target = place if named else _new(place)
            draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
            write_new(draft, [msgspec.json.encode(attachment)])
            draft.rename(target)
            sync_folder(target.parent)

    def find(self, person: str, digest: str) -> Attachment | None:
        """Return the attachment that a person sent with this hash, or None. An unused upload is then kept for as long as a
        new one."""
        if not is_digest(digest):
            return None
        with self.lock:
            place = self._place(person, digest)
            if (attachment := _read(place)) is None and (attachment := _read(_new(place))) is not None:
                os.utime(_new(place))
            return attachment

    def settle(self, person: str, digest: str) -> None:
        """Mark an attachment as used by a durable event. If the machine stops before this is durable, garbage collection
        restores it."""
        with self.lock:
            place = self._place(person, digest)
            if _new(place).exists():
                _new(place).rename(place)

    def doubt(self, person: str, digest: str) -> None:
        """Mark an attachment as unused, so that it is removed unless it is used again or `settle` is called."""
        with self.lock:
            place = self._place(person, digest)
            if place.exists():
                place.rename(_new(place))
            with suppress(FileNotFoundError):
                os.utime(_new(place), (0, 0))

    def drop(self, person: str, digest: str) -> None:
        """Remove the record of an attachment that was marked as unused and not used since."""
        with self.lock, suppress(FileNotFoundError):
            place = _new(self._place(person, digest))
            if place.stat().st_mtime == 0:
                place.unlink()

    def unsettled(self) -> Iterator[tuple[Path, str, float]]:
        """Yield each record of an unused attachment, with its hash and modification time."""
        for path in self._folder.glob(f"*/*{NEW}"):
            digest = path.name.removesuffix(NEW)
            if is_digest(digest):
                yield path, digest, path.stat().st_mtime

    def digests(self) -> set[str]:
        """Return the hashes with any record."""
        return {path.name.removesuffix(NEW) for path in self._folder.glob("*/*") if not path.name.startswith(".")}

    def records(self) -> Iterator[tuple[str, Attachment, bool]]:
        """Yield each person with an attachment, and whether an event refers to it, in the order of the files."""
        for path in sorted(self._folder.glob("*/*")):
            if is_digest(path.name.removesuffix(NEW)) and (attachment := _read(path)) is not None:
                yield _person_of(path.parent.name), attachment, not path.name.endswith(NEW)

    def is_owned(self, digest: str) -> bool:
        """Return True if anybody has a record of this hash."""
        return any(self._folder.glob(f"*/{digest}*"))

    def _place(self, person: str, digest: str) -> Path:
        return self._folder / folder_name(person) / digest


def is_digest(text: str) -> bool:
    """Return True if a text is a SHA-256 in lowercase hexadecimal, and therefore a safe file name."""
    return _DIGEST.fullmatch(text) is not None


def folder_name(person: str) -> str:
    """Return a folder name for a person, unique even on file systems that ignore case."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in person.encode("utf-8", "surrogatepass"))


def _person_of(folder: str) -> str:
    """Return the person with a folder name."""
    return unquote_to_bytes(folder).decode("utf-8", "surrogatepass")


def _read(place: Path) -> Attachment | None:
    """Read a record; None if it is missing or invalid."""
    try:
        return msgspec.json.decode(place.read_bytes(), type=Attachment)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeError):
        return None


def _new(place: Path) -> Path:
    return place.with_name(place.name + NEW)
