"""The story of the channel for Slack, see `tests.channels.story`."""

from __future__ import annotations

from pathlib import Path

from tests.channels.slack_story import Story
from tests.channels.story import tell


async def test_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    await tell(Story, tmp_path, messages=60, seed=1)
