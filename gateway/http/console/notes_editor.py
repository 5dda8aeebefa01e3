"""Reads and writes a person's notes with optimistic locking: a note is written only over the content that was read.

The operator's instructions, `AGENTS.md` and `SOUL.md`, are read and written in the same way: everybody reads them, the owner
writes them.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from gateway.support.errors import GatewayError
from plugins.api.memory.scope import Scope
from plugins.memory.sources.notes import Notes, is_markdown, is_note
from plugins.support.safe_open import OutsideFolder
from plugins.support.workspace import STANDING, NotesAccess, why_refused
from plugins.tools.file_target import MAX_FILE_BYTES, FileChanged, FileTarget, open_target, plain_parts


class NoSuchNote(GatewayError):
    """The note does not exist or may not be read; the text is a sentence."""


class NoteRefused(GatewayError):
    """The note was not written; the text is a sentence."""


class NoteChanged(GatewayError):
    """The note was changed since it was read: `theirs` is the current one, None if it was deleted."""

    def __init__(self, theirs: Note | None) -> None:
        super().__init__("Somebody else has changed this note." if theirs else "This note was deleted.")
        self.theirs = theirs


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A note. `digest` is the SHA-256 of its bytes, empty if the file does not exist yet.

    It is not `editable` if it is not UTF-8 or only the owner may change it.
    """

    path: str
    text: str
    digest: str
    editable: bool


class NoteRow(msgspec.Struct, frozen=True, kw_only=True):
    """A note in a list; `changed` is RFC 3339 in UTC."""

    path: str
    bytes: int
    changed: str


def listed_notes(workspace: Path, person: str, notes: NotesAccess = "all") -> list[NoteRow]:
    """Return the notes that a person may read, the last changed first."""
    found = []
    scope = Scope.of_person(person, group=False, notes=notes)
    for path, stamp in Notes(workspace).list_documents({}).stamps.items():
        if not scope.reads(path):
            continue
        nanoseconds, size = map(int, stamp.split(".")[:2])
        changed = datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(timespec="milliseconds")
        found.append(NoteRow(path=path, bytes=size, changed=changed.replace("+00:00", "Z")))
    return sorted(found, key=lambda note: (note.changed, note.path), reverse=True)


def read_note(workspace: Path, path: str, person: str, notes: NotesAccess = "all") -> Note:
    """Return a note that a person may read.

    Raises:
        NoSuchNote: There is no such note.
    """
    try:
        parts = _parts(workspace, path, person)
        if why := why_refused(parts, person, group=False, notes=notes):
            raise NoteRefused(why)
        with open_target(workspace, parts, make=False) as place:
            content = place.content()
    except (OutsideFolder, OSError, NoteRefused) as error:
        raise NoSuchNote(f"The note {path} cannot be shown: {_reason(error)}") from error
    if content is None and "/".join(parts) not in STANDING:
        raise NoSuchNote(f"There is no note {path}.")
    note = _note("/".join(parts), content)
    fixed = bool(why_refused(parts, person, group=False, writes=True))
    return msgspec.structs.replace(note, editable=note.editable and not fixed)


def write_note(workspace: Path, path: str, text: str, expected: str | None, person: str) -> Note:
    """Replace a note whose digest is `expected`, or create it if that is None. Line endings are preserved.

    Raises:
        NoteChanged: The note differs from what was read.
        NoteRefused: The note cannot be written.
    """
    try:
        parts = _parts(workspace, path, person)
        if why := why_refused(parts, person, group=False, writes=True):
            raise NoteRefused(f"{path} was not written: {why}")
        path = "/".join(parts)
        with open_target(workspace, parts, make=True) as place:
            before = _expected(place, path, expected)
            content = _bytes(text, before)
            if content == before:
                return _note(path, content)
            try:
                place.replace(content, lambda: None)
            except FileChanged:
                _expected(place, path, expected)
                raise NoteRefused(f"{path} is being changed by somebody else; try again.") from None
            return _note(path, content)
    except OutsideFolder as error:
        raise NoteRefused(f"{path} was not written: {error}") from error
    except OSError as error:
        raise NoteRefused(f"{path} cannot be written: {_reason(error)}") from error


def delete_note(workspace: Path, path: str, expected: str, person: str) -> None:
    """Delete a note whose digest is `expected`.

    Raises:
        NoteChanged: The note differs from what was read.
        NoteRefused: The note cannot be deleted.
    """
    parts = _changeable(workspace, path, person)
    try:
        with open_target(workspace, parts, make=False) as place:
            _read_expected(place, "/".join(parts), expected)
            place.remove()
    except FileChanged:
        raise NoteRefused(f"{path} is being changed by somebody else; try again.") from None
    except (OutsideFolder, OSError) as error:
        raise NoteRefused(f"{path} cannot be deleted: {_reason(error)}") from error


def move_note(workspace: Path, path: str, to: str, expected: str, person: str) -> Note:
    """Move a note whose digest is `expected` to a path where none is. If the process is killed, both may exist.

    Raises:
        NoteChanged: The note differs from what was read.
        NoteRefused: The note cannot be moved.
    """
    parts, target = _changeable(workspace, path, person), _changeable(workspace, to, person)
    try:
        with open_target(workspace, parts, make=False) as place:
            content = _read_expected(place, "/".join(parts), expected)
        with open_target(workspace, target, make=True) as place:
            if place.content() is not None:
                raise NoteRefused(f"There is already a note {to}.")
            place.replace(content, lambda: None)
    except FileChanged:
        raise NoteRefused(f"{to} is being changed by somebody else; try again.") from None
    except (OutsideFolder, OSError) as error:
        raise NoteRefused(f"{path} cannot be moved: {_reason(error)}") from error
    try:
        delete_note(workspace, path, expected, person)
    except GatewayError:
        delete_note(workspace, to, expected, person)  # the note was changed meanwhile, and stays where it is
        raise
    return _note("/".join(target), content)


def _changeable(workspace: Path, path: str, person: str) -> tuple[str, ...]:
    """Return the components of the path of a note that a person may change. NoteRefused if they may not."""
    try:
        parts = _parts(workspace, path, person)
    except OutsideFolder as error:
        raise NoteRefused(f"{path} cannot be changed: {error}") from error
    if why := why_refused(parts, person, group=False, writes=True):
        raise NoteRefused(f"{path} cannot be changed: {why}")
    return parts


def _read_expected(place: FileTarget, path: str, expected: str) -> bytes:
    """Return the content of a file that is there, if its digest is the expected one."""
    content = place.content()
    if content is None or sha256(content).hexdigest() != expected:
        raise NoteChanged(None if content is None else _note(path, content))
    return content


def _parts(workspace: Path, path: str, person: str) -> tuple[str, ...]:
    """Return the components of a note's path.

    Raises:
        NoteRefused: The path is not that of a note.
        OutsideFolder: The path is outside the workspace.
    """
    parts = plain_parts(workspace, path, person)
    if "/".join(parts) not in STANDING and (not is_note("/".join(parts)) or not is_markdown(parts[-1])):
        raise NoteRefused("Notes are MEMORY.md and the Markdown files in memory/; AGENTS.md and SOUL.md can be edited, too.")
    return parts


def _expected(place: FileTarget, path: str, expected: str | None) -> bytes | None:
    """Return the current content if its digest is the expected one."""
    content = place.content()
    theirs = None if content is None else _note(path, content)
    if (theirs.digest if theirs else None) != expected:
        raise NoteChanged(theirs)
    if theirs is not None and not theirs.editable:
        raise NoteRefused(f"{path} is not UTF-8 text; saving would lose the unreadable parts.")
    return content


def _bytes(text: str, before: bytes | None) -> bytes:
    lines = text.replace("\r\n", "\n")
    if before is not None and b"\r\n" in before:  # browsers normalize line endings
        lines = lines.replace("\n", "\r\n")
    content = lines.encode()
    if len(content) > MAX_FILE_BYTES:
        raise NoteRefused(f"A note may have {MAX_FILE_BYTES >> 20} MiB.")
    return content


def _note(path: str, content: bytes | None) -> Note:
    if content is None:
        return Note(path=path, text="", digest="", editable=True)
    try:
        text, editable = content.decode(), True
    except UnicodeDecodeError:
        text, editable = content.decode("utf-8", "replace"), False
    return Note(path=path, text=text.replace("\r\n", "\n"), digest=sha256(content).hexdigest(), editable=editable)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}."
    return str(error)
