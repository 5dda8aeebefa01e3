"""The story of the channel Matrix, see `tests.channels.story`."""

from __future__ import annotations

from pathlib import Path

from tests.channels.matrix_story import Story
from tests.channels.story import tell
from tests.servers.synapse_server import required

required()


async def test_every_message_is_answered_once_whatever_breaks(tmp_path: Path) -> None:
    await tell(Story, tmp_path, messages=60, seed=1)
