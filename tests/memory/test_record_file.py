"""The local backend's file: what is harmed in it is given up, it does not grow for ever, and one process writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.memory.backends import record_file
from plugins.memory.backends.local import LocalBackend
from plugins.memory.backends.record_file import RecordFile
from plugins.testing.memory_backend_checks import SMALL, document, found


def opened(place: Path, *whole: bytes) -> tuple[RecordFile, list[bytes]]:
    file = RecordFile(place, lambda: iter(whole))
    return file, file.read()


def written(place: Path, *records: bytes) -> bytes:
    """Write the records and return the content of the file."""
    file, _ = opened(place)
    for record in records:
        file.append(record, 99)
    file.close()
    return place.read_bytes()


def records_in(place: Path) -> list[bytes]:
    file, records = opened(place)
    file.close()
    return records


@pytest.mark.parametrize("harm", ["cut", "flipped", "longer"])
def test_what_follows_the_first_harmed_record_is_given_up_and_the_rest_stays(tmp_path: Path, harm: str) -> None:
    place = tmp_path / "records"
    whole = written(place, b"first", b"second", b"third")
    at = whole.index(b"second")
    harmed = {
        "cut": whole[: at + 3],
        "flipped": whole[:at] + b"S" + whole[at + 1 :],
        "longer": whole[:at] + b"xx" + whole[at:],
    }
    place.write_bytes(harmed[harm])
    file, records = opened(place)
    assert records == [b"first"]
    file.append(b"fourth", 99)
    file.close()
    assert records_in(place) == [b"first", b"fourth"]


@pytest.mark.parametrize("content", [b"", b"a file of somebody else", os.urandom(5000)])
def test_a_file_of_another_kind_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "records"
    place.write_bytes(content)
    file, records = opened(place)
    assert records == []
    file.append(b"first", 99)
    file.close()
    assert records_in(place) == [b"first"]


def test_who_comes_second_keeps_nothing_and_all_of_it_once_the_first_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "records"
    first, _ = opened(place)
    second, _ = opened(place, b"all", b"of the second")
    second.append(b"lost", 99)
    first.append(b"kept", 99)
    first.close()
    assert records_in(place) == [b"kept"]
    second.append(b"of the second", 99)
    second.append(b"and on", 99)
    second.close()
    assert records_in(place) == [b"all", b"of the second", b"and on"]


def test_a_note_that_is_written_again_and_again_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "SLACK", 20_000)
    place = tmp_path / "memory.local"

    def sizes() -> Iterator[int]:
        with LocalBackend(place) as index:
            index.store([document("memory/other.md", "We fly to Lisbon.")])
            for number in range(300):
                index.store([document("memory/day.md", f"Tea, number {number}. " * 20, str(number))])
                unmade = index.unembedded(SMALL, 9)
                assert len(unmade) == 1 + (number == 0), "what has a vector keeps it"
                index.store_vectors(SMALL, dict.fromkeys(unmade, (1.0, 0.0)))
                yield place.stat().st_size

    assert max(sizes()) < 30_000
    with LocalBackend(place) as index:
        assert index.known() == {"memory/other.md": ("1", ""), "memory/day.md": ("299", "")}
        assert found(index, "Lisbon") == ["We fly to Lisbon."]
        assert index.count_unembedded(SMALL) == 0
