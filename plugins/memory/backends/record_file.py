"""An append-only file of records. It is derived, so damaged records are dropped, not repaired."""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

_MARK = b"exuvia 1"
"""The file header. Change it with the record format or `words.indexed`, so that files are rebuilt."""
_FRAME = struct.Struct("<II")  # bytes of a record, and their CRC-32

SLACK = 4 * 1024 * 1024
"""Minimum bytes of obsolete records before the file is rewritten."""


class RecordFile:
    """A file of records that one process writes; in others nothing is persisted until that one ends.

    `live_records` returns all current records for rewriting the file. Raises OSError if the disk fails.
    """

    def __init__(self, place: Path, live_records: Callable[[], Iterable[bytes]]) -> None:
        self._place = place
        self._live_records = live_records
        self._file: BinaryIO | None = None
        self._size = 0

    def read(self) -> list[bytes]:
        """Open the file, for writing if possible, and return its intact records. Damaged ones are cut off."""
        self._file = self._open_locked()
        content = self._place.read_bytes()
        records, end = _records(content)
        if self._file is not None and (end != len(content) or not end):
            self._file.truncate(end)
            self._file.seek(end)
            if not end:
                self._file.write(_MARK)
                self._file.flush()
        self._size = max(end, len(_MARK))
        return records

    def append(self, record: bytes, live_bytes: int) -> None:
        """Append a record. `live_bytes` is the size in bytes of all current records."""
        if self._file is None:
            # The previous writer may have left a different state: rewrite the file.
            self._file = self._open_locked()
            if self._file is not None:
                self._rewrite()
        elif self._size > 2 * live_bytes + SLACK:
            self._rewrite()
        else:
            framed = _framed(record)
            self._file.write(framed)
            self._file.flush()
            self._size += len(framed)

    def close(self) -> None:
        """Close the file, so that another process can write."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def rewrite(self) -> None:
        """Write the file again with the live records only, unless another process writes it."""
        self._file = self._file or self._open_locked()
        if self._file is not None:
            self._rewrite()

    def _rewrite(self) -> None:
        new_path = self._place.with_name(self._place.name + ".new")
        with _opened(new_path) as new:
            new.truncate(0)
            new.write(_MARK)
            new.writelines(map(_framed, self._live_records()))
        new_path.replace(self._place)
        self.close()
        self._file = self._open_locked()
        self._size = self._place.stat().st_size

    def _open_locked(self) -> BinaryIO | None:
        """Return the file positioned at its end, None if another process writes it."""
        file = _opened(self._place)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        file.seek(0, os.SEEK_END)
        return file


def _opened(place: Path) -> BinaryIO:
    # Contains text of the notes: readable by its owner only.
    return open(os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _framed(record: bytes) -> bytes:
    return _FRAME.pack(len(record), zlib.crc32(record)) + record


def _records(content: bytes) -> tuple[list[bytes], int]:
    """Return the intact records at the beginning of a file, and where they end; 0 for another kind of file."""
    if not content.startswith(_MARK):
        return [], 0
    found, at = [], len(_MARK)
    while at + _FRAME.size <= len(content):
        size, check = _FRAME.unpack_from(content, at)
        record = content[at + _FRAME.size : at + _FRAME.size + size]
        if len(record) < size or zlib.crc32(record) != check:
            break
        found.append(record)
        at += _FRAME.size + size
    return found, at
