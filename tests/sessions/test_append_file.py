"""A file that grows at its end goes on after a short write, and is cut back to what is durable when it cannot."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sessions.append_file import AppendFile
from sessions.errors import StorageFailed
from sessions.mending import create_to_append


@pytest.fixture
def file(tmp_path: Path) -> AppendFile:
    return create_to_append(tmp_path / "s.jsonl")


def _short_writes(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Every write takes at most three bytes, and beyond `room` none: a kernel that does so on demand cannot be had."""
    whole = os.pwrite

    def short(descriptor: int, content: bytes, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(descriptor, content[:3], offset)

    monkeypatch.setattr(os, "pwrite", short)


def test_a_short_write_is_continued(file: AppendFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _short_writes(monkeypatch, room=100)
    file.write(b"one line\n")
    file.write(b"another\n")
    file.sync()
    assert (tmp_path / "s.jsonl").read_bytes() == b"one line\nanother\n"
    assert file.durable == file.end == 17
    file.close()


def test_a_short_write_that_cannot_be_continued_leaves_what_was_durable(
    file: AppendFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(b"one line\n")
    file.sync()
    _short_writes(monkeypatch, room=12)
    with pytest.raises(StorageFailed, match="No space left") as caught:
        file.write(b"another\n")
    assert not caught.value.fatal
    assert (tmp_path / "s.jsonl").read_bytes() == b"one line\n"
    file.close()


def test_a_line_is_written_once_and_nothing_else_however_long_the_file_is(
    file: AppendFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure 12: the guard is that a file only grows at its end."""
    whole, written = os.pwrite, list[tuple[int, int]]()

    def watched(descriptor: int, content: bytes, offset: int) -> int:
        written.append((offset, len(content)))
        return whole(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", watched)
    for number in range(200):
        file.write(b"line %03d\n" % number)
        file.sync()
    assert written == [(9 * number, 9) for number in range(200)]
    file.close()
