"""The story of channels bites: it ends well for a channel that is right, and names what another one does wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels import story
from tests.channels.post_office import PostOffice
from tests.channels.story import tell


async def test_the_story_of_a_channel_that_is_right_ends_well(tmp_path: Path) -> None:
    report = await tell(PostOffice, tmp_path, messages=60, seed=1)
    assert {"kill", "cut"} <= set(report.disturbances)
    assert (report.unseen, report.repeated) == (0, 0)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("acknowledges early", "lost: message"),
        ("new ids", "doubled: message"),
        ("posts again", "posted twice: paragraph"),
        ("skips", "not posted: "),
        ("loses ends", "not posted: "),
        ("reorders", "reordered: "),
    ],
)
async def test_the_story_names_what_a_channel_does_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, found: str
) -> None:
    monkeypatch.setattr(story, "STUCK_SECONDS", 10.0)
    with pytest.raises(AssertionError, match=f"WRONG {found}"):
        await tell(lambda folder: PostOffice(folder, fault), tmp_path, messages=10, seed=1, calm=True)
