"""The story of the email channel, with few messages."""

from __future__ import annotations

from pathlib import Path

from tests.channels.email_story import Story
from tests.channels.story import tell


async def test_no_mail_is_lost_doubled_or_answered_twice(tmp_path: Path) -> None:
    report = await tell(Story, tmp_path, messages=60, seed=1)
    assert {"kill", "cut"} <= set(report.disturbances)
    assert (report.unseen, report.repeated) == (0, 0)
