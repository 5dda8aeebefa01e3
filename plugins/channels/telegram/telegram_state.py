"""What the Telegram channel keeps on disk: groups that became supergroups, and how albums were received.

No offset is kept: the Bot API keeps what was not confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plugins.support.state_file import StateFile

KEPT_ALBUMS = 50
"""The latest albums that are remembered. Only those that are not yet confirmed are needed."""


class TelegramState:
    """The state of one bot. Changes are durable when the methods return."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path)
        self._migrated: dict[str, int] = {}
        """The id of the supergroup that a group has become, by the group's id."""
        self._albums: dict[str, list[list[int]]] = {}

    async def load(self) -> None:
        """Read the file."""
        state = await self._file.load()
        self._migrated = {str(old): int(new) for old, new in state.get("migrated", {}).items()}
        self._albums = {str(album): parts for album, parts in state.get("albums", {}).items()}

    def conversation(self, chat: int) -> str:
        """Return the name of a chat for the gateway. A supergroup keeps the name of the group that it was."""
        return next((old for old, new in self._migrated.items() if new == chat), str(chat))

    def chat(self, conversation: str) -> int | str:
        """Return the id of a chat by its name for the gateway."""
        return self._migrated.get(conversation) or (int(conversation) if _is_number(conversation) else conversation)

    async def migrate(self, group: int, supergroup: int) -> None:
        """Note that a group has become a supergroup."""
        conversation = self.conversation(group)
        if self._migrated.get(conversation) != supergroup:
            self._migrated[conversation] = supergroup
            await self._save()

    async def album_parts(self, album: str, messages: Sequence[int]) -> list[list[int]]:
        """Divide the messages of an album, as far as it has arrived, into those that are received as one.

        A message of the gateway cannot grow. What came in one part stays that part after a crash, when more of the album may
        have arrived: the rest is a part of its own.
        """
        parts = self._albums.pop(album, [])
        known = {message for part in parts for message in part}
        new = [message for message in messages if message not in known]
        self._albums[album] = [*parts, new] if new else parts
        if new:
            self._albums = dict(list(self._albums.items())[-KEPT_ALBUMS:])
            await self._save()
        arrived = set(messages)
        return [part for part in self._albums[album] if arrived.issuperset(part)]

    async def _save(self) -> None:
        state: dict[str, Any] = {"migrated": self._migrated, "albums": self._albums}
        await self._file.save(state)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()
