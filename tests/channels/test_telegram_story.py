"""The story of the Telegram channel."""

from __future__ import annotations

from pathlib import Path

from tests.channels.story import tell
from tests.channels.telegram_story import Story


async def test_no_message_is_lost_and_each_is_answered_once(tmp_path: Path) -> None:
    report = await tell(Story, tmp_path, messages=60, seed=1)
    assert {"kill", "cut"} <= set(report.disturbances)
