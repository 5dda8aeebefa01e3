"""A file of records, one after the other, only ever appended to. Derived: what is harmed in it is given up, not repaired."""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

_MARK = b"exuvia 1"
"""How it begins. To be changed with the form of the records and with what `words.indexed` gives: then it is made anew."""
_FRAME = struct.Struct("<II")  # bytes of a record, and their CRC-32

SLACK = 4 * 1024 * 1024
"""Bytes of what no longer counts that are left in the file, at least; beyond, at most as many as count."""


class RecordFile:
    """Records in the file `place`. One process writes to it; in others, until that one ends, nothing is kept. `whole` are
    all the records that count now, from which the file is made anew when it has grown too large. OSError where the disk
    does not do what it should."""

    def __init__(self, place: Path, whole: Callable[[], Iterable[bytes]]) -> None:
        self._place = place
        self._whole = whole
        self._file: BinaryIO | None = None
        self._size = 0

    def read(self) -> list[bytes]:
        """Open it, for writing if no other process has it, and return its records up to the first that is harmed or torn.
        That one and those behind it are cut off."""
        self._file = self._claimed()
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

    def append(self, record: bytes, counting: int) -> None:
        """Keep one more. `counting` is how many bytes of records count, this one among them."""
        if self._file is None:
            # Whoever had it may have gone, and have left another state there than the one known here.
            self._file = self._claimed()
            if self._file is not None:
                self._make_anew()
        elif self._size > 2 * counting + SLACK:
            self._make_anew()
        else:
            framed = _framed(record)
            self._file.write(framed)
            self._file.flush()
            self._size += len(framed)

    def close(self) -> None:
        """Let it go, so that another process may write."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _make_anew(self) -> None:
        beside = self._place.with_name(self._place.name + ".new")
        with _opened(beside) as new:
            new.truncate(0)
            new.write(_MARK)
            new.writelines(map(_framed, self._whole()))
        beside.replace(self._place)
        self.close()
        self._file = self._claimed()
        self._size = self._place.stat().st_size

    def _claimed(self) -> BinaryIO | None:
        """The file, at its end, if this process may write to it."""
        file = _opened(self._place)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        file.seek(0, os.SEEK_END)
        return file


def _opened(place: Path) -> BinaryIO:
    # It holds what the notes say: for its owner's eyes.
    return open(os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _framed(record: bytes) -> bytes:
    return _FRAME.pack(len(record), zlib.crc32(record)) + record


def _records(content: bytes) -> tuple[list[bytes], int]:
    """The whole records at the beginning of a file, and where they end; 0 for a file of another kind."""
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
