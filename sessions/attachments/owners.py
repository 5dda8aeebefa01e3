"""Whose an attachment is: one small record for each person and content, beside the contents themselves.

Contents are kept once, by their hash, and a hash is no secret: it may be guessed, or computed from a file that somebody
else has too. So nothing is given out, and nothing taken into a message, by hash alone: only what the person has sent, as
their record `owners/<person>/<sha256>` says. It holds what the file is, so that a hash is enough to name it.

A record is called `<sha256>.new` until an event in a journal names the attachment; only such records are ever removed.
Records of named attachments are derived: where they are lost they are made again from the journals.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sessions.events.messages import Attachment
from sessions.files.fsync import sync_folder, write_new

NEW = ".new"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")


class Owners:
    """The records below one folder. Every method blocks, and raises OSError where the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lock = threading.Lock()
        """Held while a record is used or removed, so that nothing is removed that a message is about to name."""

    def record(self, person: str, attachment: Attachment, *, named: bool = False) -> None:
        """Remember, durably, that a person sent this. `named` says that a journal names it."""
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
        """What a person sent under this hash; None if they sent nothing such, whoever else did. It is not removed for as
        long again as an upload that just came."""
        if not is_digest(digest):
            return None
        with self.lock:
            place = self._place(person, digest)
            if (attachment := _read(place)) is None and (attachment := _read(_new(place))) is not None:
                os.utime(_new(place))
            return attachment

    def settle(self, person: str, digest: str) -> None:
        """Note that a durable event names it. If the machine stops before the name is on the disk, the sweep finds out."""
        with self.lock:
            place = self._place(person, digest)
            if _new(place).exists():
                _new(place).rename(place)

    def unsettled(self) -> Iterator[tuple[Path, str, float]]:
        """Each record that no event is known to name, with its hash and its age as a time of the file system."""
        for path in self._folder.glob(f"*/*{NEW}"):
            digest = path.name.removesuffix(NEW)
            if is_digest(digest):
                yield path, digest, path.stat().st_mtime

    def digests(self) -> set[str]:
        """The hashes of which there is any record."""
        return {path.name.removesuffix(NEW) for path in self._folder.glob("*/*") if not path.name.startswith(".")}

    def is_owned(self, digest: str) -> bool:
        """Whether anybody has a record of it."""
        return any(self._folder.glob(f"*/{digest}*"))

    def _place(self, person: str, digest: str) -> Path:
        return self._folder / folder_name(person) / digest


def is_digest(text: str) -> bool:
    """Whether a text is a hexadecimal SHA-256 as we write it, and so a harmless name of a file."""
    return _DIGEST.fullmatch(text) is not None


def folder_name(person: str) -> str:
    """A person's name as that of a folder: two persons never share one, whatever the file system makes of capitals."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in person.encode("utf-8", "surrogatepass"))


def _read(place: Path) -> Attachment | None:
    """What a record says; None if there is none, or nothing that we wrote."""
    try:
        return msgspec.json.decode(place.read_bytes(), type=Attachment)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeError):
        return None


def _new(place: Path) -> Path:
    return place.with_name(place.name + NEW)
