"""A plugin's state file: replaced whole and durably, and a damaged one is not lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from exuvia import StateFile


async def test_what_was_saved_is_loaded_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "channels" / "home" / "state.json"
    assert await StateFile(file).load() == {}
    await StateFile(file).save({"offset": 17, "name": "ana \ud800"})
    assert await StateFile(file).load() == {"offset": 17, "name": "ana \ud800"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
async def test_a_damaged_file_is_logged_and_kept_under_another_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with capture_logs() as logged:
        assert await StateFile(tmp_path / "state.json").load() == {}
    assert [(line["event"], line["log_level"]) for line in logged] == [("state_file_damaged", "error")]
    assert (tmp_path / "state.json.damaged").read_bytes() == content
    assert not (tmp_path / "state.json").exists()


async def test_the_last_of_several_saves_wins_even_if_an_earlier_one_is_cancelled(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    first = asyncio.create_task(file.save({"offset": 1}))
    later = [asyncio.create_task(file.save({"offset": number})) for number in range(2, 10)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(*later)
    assert await file.load() == {"offset": 9}
    assert first.cancelled()


async def test_what_is_not_json_or_cannot_be_written_leaves_the_earlier_state(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "folder" / "state.json")
    await file.save({"offset": 1})
    with pytest.raises(TypeError):
        await file.save({"offset": object()})
    (tmp_path / "folder" / "state.json").unlink()
    (tmp_path / "folder" / "state.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        await file.save({"offset": 2})
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["state.json"]
