"""A client with matrix-nio: reads commands as lines of JSON, writes their results. Runs in Synapse's environment."""

import asyncio
import json
import sys
from typing import Any

from nio import (  # type: ignore[import-not-found]
    AsyncClient,
    AsyncClientConfig,
    JoinError,
    LoginError,
    MegolmEvent,
    RoomMessage,
    RoomSendError,
    UploadError,
)
from nio.crypto import decrypt_attachment  # type: ignore[import-not-found]


class Client:
    """The client, and the events that it has decrypted."""

    def __init__(self, url: str, name: str, folder: str) -> None:
        config = AsyncClientConfig(encryption_enabled=True, store_sync_tokens=True)
        self.nio = AsyncClient(url, f"@{name}:test", store_path=folder, config=config)
        self.events: dict[str, dict[str, Any]] = {}
        self.nio.add_event_callback(self._on_event, (RoomMessage, MegolmEvent))

    async def _on_event(self, room: Any, event: Any) -> None:
        undecrypted = isinstance(event, MegolmEvent)
        self.events[event.event_id] = {
            "room": room.room_id,
            "sender": event.sender,
            "event_id": event.event_id,
            "encrypted": undecrypted or event.decrypted,
            "verified": getattr(event, "verified", None),
            "content": {"body": "UNDECRYPTED"} if undecrypted else event.source["content"],
        }

    async def make_room(self, invited: list[str]) -> str:
        """Make an encrypted room."""
        encryption = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        return str((await self.nio.room_create(invite=invited, is_direct=True, initial_state=[encryption])).room_id)

    async def say(self, room: str, content: dict[str, Any]) -> str:
        """Send a message."""
        answer = await self.nio.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
        if isinstance(answer, RoomSendError):
            raise RuntimeError(str(answer))
        return str(answer.event_id)

    async def file(self, room: str, name: str, text: str) -> str:
        """Send an encrypted file."""

        def data(_failures: int, _waits: int) -> bytes:
            return text.encode()

        answer, keys = await self.nio.upload(data, "text/plain", name, encrypt=True, filesize=len(text.encode()))
        if isinstance(answer, UploadError):
            raise RuntimeError(str(answer))
        file = keys | {"url": answer.content_uri}
        return await self.say(room, {"msgtype": "m.file", "body": name, "info": {"mimetype": "text/plain"}, "file": file})

    async def read_file(self, event: str) -> str:
        """Return the content of an encrypted file that was received."""
        file = self.events[event]["content"]["file"]
        answer = await self.nio.download(file["url"])
        text: bytes = decrypt_attachment(answer.body, file["key"]["k"], file["hashes"]["sha256"], file["iv"])
        return text.decode()

    async def join(self, room: str) -> None:
        """Accept an invitation."""
        if isinstance(answer := await self.nio.join(room), JoinError):
            raise RuntimeError(str(answer))

    async def kick(self, room: str, user: str) -> None:
        """Remove somebody from a room."""
        await self.nio.room_kick(room, user)

    async def events_of(self, room: str) -> list[dict[str, Any]]:
        """Return the messages of a room."""
        return [event for event in self.events.values() if event["room"] == room]

    async def members(self, room: str) -> list[str]:
        """Return who is in a room. The client encrypts for nobody else."""
        found = self.nio.rooms.get(room)
        return sorted(set(found.users) - set(found.invited_users)) if found is not None else []

    async def do(self, command: str, *values: Any) -> Any:
        """Carry out a command."""
        commands: dict[str, Any] = {
            "room": self.make_room,
            "join": self.join,
            "say": self.say,
            "file": self.file,
            "read_file": self.read_file,
            "events": self.events_of,
            "members": self.members,
            "kick": self.kick,
        }
        return await commands[command](*values)


async def main(url: str, name: str, password: str, folder: str) -> None:
    """Log in, and serve commands until the input ends."""
    client = Client(url, name, folder)
    if isinstance(answer := await client.nio.login(password), LoginError):
        raise SystemExit(str(answer))
    await client.nio.sync(timeout=0, full_state=True)
    syncing = asyncio.create_task(client.nio.sync_forever(timeout=10_000))
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    while line := await reader.readline():
        if syncing.done():
            syncing.result()
        try:
            result: dict[str, Any] = {"result": await client.do(*json.loads(line))}
        except Exception as error:
            result = {"error": repr(error)}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


asyncio.run(main(*sys.argv[1:]))
