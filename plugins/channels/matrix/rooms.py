"""The rooms that the channel is in: their members, and whether they are encrypted. Asked for when first needed, and again
after a change."""

from __future__ import annotations

from typing import Any

import msgspec

from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError, of_room

MOST_ROOMS = 500
"""Rooms that are remembered; others are asked for again."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A room.

    Attributes:
        names: The names of its members, invited ones included, by their ids.
        encryption: The content of `m.room.encryption`; None if the room is not encrypted.
    """

    names: dict[str, str]
    encryption: dict[str, Any] | None

    @property
    def is_group(self) -> bool:
        """More than two people read the room."""
        return len(self.names) > 2


class Rooms:
    """The rooms that the channel is in, by their ids."""

    def __init__(self, client: MatrixClient) -> None:
        self._client = client
        self._rooms: dict[str, Room] = {}
        self._changes = 0

    async def get(self, room: str) -> Room:
        """Return a room.

        Raises:
            MatrixError, ProviderError: The server does not tell.
        """
        if (found := self._rooms.get(room)) is not None:
            return found
        changes = self._changes
        answer = await self._client.request("GET", f"{of_room(room)}/members", query={"not_membership": "leave"})
        made = Room(names=_names(answer.get("chunk")), encryption=await self._encryption(room))
        if changes == self._changes:  # otherwise it may be out of date already
            while len(self._rooms) >= MOST_ROOMS:
                del self._rooms[next(iter(self._rooms))]
            self._rooms[room] = made
        return made

    def changed(self, room: str) -> None:
        """Ask for a room again when it is needed."""
        self._changes += 1
        self._rooms.pop(room, None)

    async def _encryption(self, room: str) -> dict[str, Any] | None:
        try:
            return await self._client.request("GET", f"{of_room(room)}/state/m.room.encryption/")
        except MatrixError as error:
            if error.status != 404:
                raise
        return None


def _names(events: Any) -> dict[str, str]:
    names = {}
    for event in events if isinstance(events, list) else []:
        content, member = event.get("content"), event.get("state_key")
        if isinstance(content, dict) and isinstance(member, str) and content.get("membership") in ("join", "invite"):
            name = content.get("displayname")
            names[member] = name if isinstance(name, str) else member
    return names
