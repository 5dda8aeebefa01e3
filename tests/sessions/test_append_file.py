"""A file that grows at its end goes on after a short write, and is cut back to what is durable when it cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sessions.events.errors import StorageFailed
from sessions.files.append_file import AppendFile
from sessions.files.repair import create_to_append
from tests.open_files import open_below


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


def test_appending_writes_only_the_new_line_to_a_file_of_any_length(
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


def test_an_idle_file_uses_no_descriptor(tmp_path: Path) -> None:
    files = [create_to_append(tmp_path / f"{number}.jsonl") for number in range(5)]
    assert open_below(tmp_path) == []
    for file in files:
        file.write(b"one line\n")
    assert len(open_below(tmp_path)) == 5
    for file in files:
        file.sync()
    assert open_below(tmp_path) == []


def test_without_a_descriptor_nothing_is_written_and_nothing_is_lost(
    file: AppendFile, tmp_path: Path, take_all_descriptors: Callable[[], None]
) -> None:
    file.write(b"one line\n")
    file.sync()
    take_all_descriptors()
    with pytest.raises(StorageFailed, match="Too many open files") as caught:
        file.write(b"another\n")
    assert not caught.value.fatal
    assert (tmp_path / "s.jsonl").stat().st_size == 9


def test_without_a_descriptor_for_its_folder_a_new_file_is_truncated_and_the_storage_continues(
    file: AppendFile, tmp_path: Path, take_all_descriptors: Callable[[], None]
) -> None:
    file.write(b"one line\n")
    take_all_descriptors()
    with pytest.raises(StorageFailed, match="Too many open files") as caught:
        file.sync()
    assert not caught.value.fatal
    assert (tmp_path / "s.jsonl").stat().st_size == file.durable == file.end == 0


def test_a_failed_sync_is_fatal(file: AppendFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file.write(b"one line\n")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageFailed, match="could not be made durable") as caught:
        file.sync()
    assert caught.value.fatal


def test_a_missing_file_is_not_written_and_only_its_journal_fails(file: AppendFile, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").unlink()
    with pytest.raises(StorageFailed, match=r"s\.jsonl is missing") as caught:
        file.write(b"one line\n")
    assert not caught.value.fatal


@pytest.mark.parametrize("essential", [True, False])
def test_a_missing_folder_fails_the_storage_if_it_is_essential(tmp_path: Path, essential: bool) -> None:
    folder, away = tmp_path / "sessions", tmp_path / "away"
    folder.mkdir()
    file = create_to_append(folder / "s.jsonl", essential=essential)
    folder.rename(away)
    with pytest.raises(StorageFailed, match=f"The folder {folder} is missing") as caught:
        file.write(b"one line\n")
    assert caught.value.fatal is essential
    assert (away / "s.jsonl").stat().st_size == 0
    with pytest.raises(StorageFailed, match=f"The folder {folder} is missing") as caught:
        create_to_append(folder / "t.jsonl", essential=essential)
    assert caught.value.fatal is essential


def test_a_file_changed_by_another_process_is_not_written(file: AppendFile, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(b"one line of somebody else\n")
    with pytest.raises(StorageFailed, match="changed by another process") as caught:
        file.write(b"one line\n")
    assert not caught.value.fatal
    assert (tmp_path / "s.jsonl").read_bytes() == b"one line of somebody else\n"
