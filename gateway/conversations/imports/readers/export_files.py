"""The files of an export, in a folder or a .zip archive which is not unpacked, and the elements of a long JSON array."""

from __future__ import annotations

import lzma
import os
import re
import stat
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec

from gateway.conversations.imports.readers.import_values import SourceInvalid

ELEMENT_BYTES = 32 * 1024 * 1024
"""Maximum bytes of one conversation as JSON."""

PIECE_BYTES = 1024 * 1024
"""Bytes that are read at a time."""

MOST_MEMBERS = 200_000
"""Maximum files in an archive."""

DENSE_BYTES, DENSITY = 64 * 1024 * 1024, 100
"""Beyond so many bytes, a file of an archive may not be so many times larger than its compressed form."""


class Readable(Protocol):
    """A binary stream for reading."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes, b"" at the end."""
        ...


class ExportFiles:
    """The files of one export by their names, without folders.

    Args:
        path: A folder, a .zip archive, or one of the files.

    Raises:
        SourceInvalid: It is none of them.
    """

    def __init__(self, path: Path) -> None:
        self._archive: zipfile.ZipFile | None = None
        self._paths: dict[str, Path] = {}
        self._members: dict[str, zipfile.ZipInfo] = {}
        if path.is_dir():
            inside = (each for each in sorted(path.glob("*/*")) if each.is_file() and not each.is_symlink())
            self._paths = {each.name: each for each in (*inside, *sorted(path.iterdir())) if each.is_file()}
        elif not path.is_file():
            raise SourceInvalid(f"There is no file or folder {path}.")
        elif zipfile.is_zipfile(path):
            self._open_archive(path)
        else:
            self._paths = {path.name: path}

    def _open_archive(self, path: Path) -> None:
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise SourceInvalid(f"{path.name} is a damaged archive: {error}.") from error
        members = self._archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise SourceInvalid(f"{path.name} holds {len(members):,} files; at most {MOST_MEMBERS:,} are read.")
        self._members = {each.filename.rpartition("/")[2]: each for each in members if not each.is_dir()}

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return sorted([*self._paths, *self._members])

    def __contains__(self, name: str) -> bool:
        return name in self._paths or name in self._members

    def named(self, beginning: str) -> str:
        """Return the name of the first file that begins so; "" if there is none."""
        at = bisect_left(self._sorted, beginning)
        found = self._sorted[at] if beginning and at < len(self._sorted) else ""
        return found if found.startswith(beginning) else ""

    @cached_property
    def _sorted(self) -> list[str]:
        return self.names

    def close(self) -> None:
        """Close the archive."""
        if self._archive is not None:
            self._archive.close()

    @contextmanager
    def open(self, name: str) -> Iterator[Readable]:
        """Open a file. Raises SourceInvalid; also while it is read, if the archive is damaged or a bomb."""
        try:
            if self._archive is not None:
                member = self._members[name]
                with self._archive.open(member) as stream:
                    yield _Bounded(stream, max(DENSE_BYTES, DENSITY * member.compress_size), name)
            else:
                with open(self._paths[name], "rb", opener=_open_plain) as stream:
                    yield stream
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError) as error:
            raise SourceInvalid(f"{name} in the archive cannot be read: {error}.") from error
        except OSError as error:
            raise SourceInvalid(f"{name} cannot be read: {error.strerror or error}.") from error

    def read(self, name: str, limit: int = ELEMENT_BYTES) -> bytes:
        """Return the content of a file. Raises SourceInvalid."""
        with self.open(name) as stream:
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise SourceInvalid(f"{name} has more than {limit // 2**20} MiB.")
        return content


def _open_plain(path: str, flags: int) -> int:
    """Open a regular file; a pipe would block."""
    opened = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError("it is not a regular file")
    return opened


class _Bounded:
    """A stream of an archive that ends with SourceInvalid where it would grow absurdly."""

    def __init__(self, stream: Readable, limit: int, name: str) -> None:
        self._stream = stream
        self._left = limit
        self._name = name

    def read(self, size: int = -1, /) -> bytes:
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        piece = self._stream.read(wanted)
        self._left -= len(piece)
        if self._left < 0:
            raise SourceInvalid(f"{self._name} grows too much when it is decompressed; the archive is not read further.")
        return piece


# --- elements of an array -------------------------------------------------------------------------------------------------

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},]|"', re.DOTALL)
_IN_STRING = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)


class TooLong(msgspec.Struct, frozen=True):
    """An element of an array that was skipped, because it has this number of bytes."""

    size: int


def elements(stream: Readable) -> Iterator[bytes | TooLong]:
    """Yield the elements of a JSON array, each as bytes, without decoding them; a document that is no array is one element.

    Only the nesting is followed. Raises SourceInvalid if the document ends too early.
    """
    splitter = _Splitter()
    while piece := stream.read(PIECE_BYTES):
        yield from splitter.feed(piece)
    splitter.end()


class _Splitter:
    """Splits a document that arrives in pieces."""

    def __init__(self) -> None:
        self._text = b""
        self._at = 0
        self._start = 0
        self._depth = -1  # before the array
        self._quoted = False
        self._kept: list[bytes] = []
        self._size = 0
        self._array = True
        self._done = False

    def feed(self, piece: bytes) -> Iterator[bytes | TooLong]:
        """Yield the elements that are complete now. What follows the document is ignored."""
        if self._done:
            return
        self._text = self._text[self._start :] + piece
        self._at -= self._start
        self._start = 0
        if self._depth < 0 and not self._begin():
            return
        while self._at < len(self._text):
            if self._quoted and not self._leave_string():
                break
            if (token := _TOKEN.search(self._text, self._at)) is None:
                self._at = len(self._text)
                break
            mark = token[0]
            if mark == b'"':  # the string goes on in the next piece
                self._at, self._quoted = token.end(), True
                continue
            self._at = token.end()
            if mark in (b"[", b"{"):
                self._depth += 1
            elif mark in (b"]", b"}"):
                self._depth -= 1
                if self._depth == (0 if self._array else 1):
                    self._done = True
                    yield from self._element(token.start() if self._array else token.end())
                    return
            elif mark == b"," and self._depth == 1 and self._array:
                yield from self._element(token.start())
        self._keep()

    def _begin(self) -> bool:
        text = self._text.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not text:
            return False
        self._array = text[:1] == b"["
        self._depth, self._text, self._start = (1, text[1:], 0) if self._array else (1, text, 0)
        self._at = 0
        return True

    def _leave_string(self) -> bool:
        """Skip the rest of a string; return False if it goes on in the next piece."""
        inside = _IN_STRING.match(self._text, self._at)
        assert inside is not None
        self._at = inside.end()
        if self._text[self._at : self._at + 1] != b'"':
            return False
        self._at += 1
        self._quoted = False
        return True

    def _keep(self) -> None:
        """Put aside what was scanned of the current element; only the bytes after it are scanned again."""
        if self._start < self._at:
            piece = self._text[self._start : self._at]
            self._size += len(piece)
            if self._size <= ELEMENT_BYTES:
                self._kept.append(piece)
            self._start = self._at

    def _element(self, end: int) -> Iterator[bytes | TooLong]:
        at, self._at = self._at, end
        self._keep()
        self._at = self._start = at
        size, content = self._size, b"".join(self._kept).strip(b" \t\r\n,")
        self._kept, self._size = [], 0
        if size > ELEMENT_BYTES:
            yield TooLong(size)
        elif content:
            yield content

    def end(self) -> None:
        """Check that the document is complete."""
        if not self._done:
            raise SourceInvalid("The file ends too early; it is not a complete JSON document.")
