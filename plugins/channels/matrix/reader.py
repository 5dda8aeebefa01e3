"""Events of a room as inbound messages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from plugins.api.channel import InboundFile, InboundMessage
from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError
from plugins.channels.matrix.rooms import Room, Rooms
from plugins.support.errors import BadAnswer, PluginError

KEYCAPS = ("1️⃣", "2️⃣", "3️⃣", "4️⃣", "5️⃣", "6️⃣", "7️⃣", "8️⃣", "9️⃣")
"""The reactions that stand for the choices of a question, in their order."""

CHOICES = "exuvia.choices"
"""The key of a question's content that has the ids of its choices."""

REMEMBERED = 200
"""Events that are remembered because somebody may reply to them."""

QUOTED = 1000
"""Remembered characters of an event."""

FILES = frozenset({"m.image", "m.file", "m.audio", "m.video"})

_VARIATIONS = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
"""The variation selector of emoji, and skin tones."""

_OLD_FALLBACK = re.compile(r"\A> <[^>\n]*>.*(?:\n>.*)*\n\n?")
"""The quotation at the beginning of a reply from a client of before Matrix 1.13."""


DOWNLOADS = 8
"""How often a file is asked for while its server has a temporary problem: a minute and a half."""


class FileUnavailable(PluginError):
    """A file cannot be had; the error message says why."""


class Said(msgspec.Struct, frozen=True):
    """An event, as far as a later one may refer to it."""

    sender: str
    kind: str
    text: str
    choices: tuple[str, ...] = ()


class EventReader:
    """Reads the events of rooms.

    `decrypted` returns an event with its content decrypted. `user` returns the id of our own account.
    """

    def __init__(
        self,
        client: MatrixClient,
        rooms: Rooms,
        *,
        user: Callable[[], str],
        own_name: Callable[[], str],
        decrypted: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
        download: Callable[[Mapping[str, Any]], Awaitable[bytes]],
    ) -> None:
        self._client = client
        self._rooms = rooms
        self._user = user
        self._own_name = own_name
        self._decrypted = decrypted
        self._download = download
        self._said: dict[str, Said | None] = {}
        self._failed_downloads: dict[str, int] = {}

    async def read(
        self, room_id: str, event: dict[str, Any], *, is_known: bool, hears_unmentioned: Callable[[], Awaitable[bool]]
    ) -> InboundMessage | None:
        """Return an event as a message; None if it is none.

        Args:
            room_id: The room.
            event: The event; an encrypted one must have been decrypted.
            is_known: The sender is known. Nothing else is asked for, and no file, for a message of a stranger.
            hears_unmentioned: Returns True if messages that address somebody else are accepted; otherwise their files are
                not asked for.

        Raises:
            MatrixError, ProviderError: What belongs to it cannot be had.
            FileUnavailable: Its file cannot be had.
        """
        content, kind = event["content"], event["type"]
        if not is_known:
            return await self._strangers(room_id, event)
        if kind == "m.room.redaction":
            return await self._deletion(room_id, event)
        relation = _object(content.get("m.relates_to"))
        if kind == "m.reaction":
            return await self._reaction(room_id, event, relation)
        if kind != "m.room.message" or content.get("msgtype") == "m.notice":
            return None
        if relation.get("rel_type") == "m.replace":
            return await self._edit(room_id, event, _text(relation.get("event_id")))
        room = await self._rooms.get(room_id)
        replied = await self._replied(room_id, relation)
        body = _body(content, room.names.get(event["sender"], event["sender"]), has_reply=replied is not None)
        self._remember(event["event_id"], Said(event["sender"], kind, body[:QUOTED]))
        mentioned = (
            not room.is_group
            or self._is_mentioned(content, body)
            or (replied is not None and replied.sender == self._user())
        )
        is_heard = mentioned or await hears_unmentioned()
        return self._message(
            room_id,
            room,
            event,
            text=body,
            mentioned=mentioned,
            reply=replied.text if replied else "",
            thread=_text(relation.get("event_id")) if relation.get("rel_type") == "m.thread" else "",
            attachments=await self._files(event["event_id"], content) if is_heard else (),
        )

    def remember_own(self, event: str, text: str, choices: tuple[str, ...]) -> None:
        """Remember an event that was sent."""
        self._remember(event, Said(self._user(), "m.room.message", text[:QUOTED], choices))

    # --- kinds of events ----------------------------------------------------------------------------------------------

    async def _strangers(self, room_id: str, event: dict[str, Any]) -> InboundMessage | None:
        content, kind = event["content"], event["type"]
        if kind != "m.room.message" or content.get("msgtype") == "m.notice" or _object(content.get("m.relates_to")):
            return None
        body = _body(content, event["sender"], has_reply=False)
        room = await self._rooms.get(room_id)
        mentioned = not room.is_group or self._is_mentioned(content, body)
        return self._message(room_id, room, event, text=body, mentioned=mentioned)

    async def _edit(self, room_id: str, event: dict[str, Any], original: str) -> InboundMessage | None:
        """Return an edit. Servers pass on edits of other people's messages, too: these do not count."""
        new, said = _object(event["content"].get("m.new_content")), await self._lookup(room_id, original)
        if said is None or said.sender != event["sender"] or not new:
            return None
        room = await self._rooms.get(room_id)
        body = _body(new, room.names.get(event["sender"], event["sender"]), has_reply=False)
        self._remember(original, msgspec.structs.replace(said, text=body[:QUOTED]))
        mentioned = not room.is_group or self._is_mentioned(new, body)
        return self._message(room_id, room, event, text=body, edits=original, mentioned=mentioned)

    async def _deletion(self, room_id: str, event: dict[str, Any]) -> InboundMessage | None:
        """Return a deletion in the name of who wrote the message, whoever deleted it."""
        deleted = _text(event["content"].get("redacts")) or _text(event.get("redacts"))
        said = await self._lookup(room_id, deleted)
        if said is None or said.sender == self._user() or said.kind not in ("m.room.message", "m.room.encrypted"):
            return None
        room = await self._rooms.get(room_id)
        return self._message(room_id, room, event | {"sender": said.sender}, text="", deletes=deleted)

    async def _reaction(self, room_id: str, event: dict[str, Any], relation: Mapping[str, Any]) -> InboundMessage | None:
        post, key = _text(relation.get("event_id")), _text(relation.get("key"))
        if relation.get("rel_type") != "m.annotation" or not post or not key:
            return None
        choice = ""
        if key in KEYCAPS:
            said, place = await self._lookup(room_id, post), KEYCAPS.index(key)
            if said is not None and said.sender == self._user() and place < len(said.choices):
                choice = said.choices[place]
        room, key = await self._rooms.get(room_id), _VARIATIONS.sub("", key)
        if choice:
            return self._message(room_id, room, event, text="", choice=choice)
        return self._message(room_id, room, event, text="", reaction=key[:32], reacts_to=post)

    def _message(self, room_id: str, room: Room, event: Mapping[str, Any], *, text: str, **more: Any) -> InboundMessage:
        return InboundMessage(
            id=event["event_id"],
            sender=event["sender"],
            chat=room_id,
            text=text,
            group=room.is_group,
            name=room.names.get(event["sender"], ""),
            at=_seconds(event.get("origin_server_ts")),
            **more,
        )

    # --- what belongs to an event ---------------------------------------------------------------------------------------

    async def _replied(self, room_id: str, relation: Mapping[str, Any]) -> Said | None:
        """Return the event that is replied to. In a thread most clients name the event before, which is no reply."""
        event = _text(_object(relation.get("m.in_reply_to")).get("event_id"))
        if not event or (relation.get("rel_type") == "m.thread" and relation.get("is_falling_back") is True):
            return None
        return await self._lookup(room_id, event)

    async def _lookup(self, room_id: str, event_id: str) -> Said | None:
        """Return an earlier event of a room; None if the server does not have it or we may not read it."""
        if not event_id:
            return None
        if event_id not in self._said:
            try:
                event = await self._client.event(room_id, event_id)
            except MatrixError as error:
                if error.is_temporary:
                    raise
                event = {}
            self._remember(event_id, await self._said_by(room_id, event))
        return self._said.get(event_id)

    async def _said_by(self, room_id: str, event: dict[str, Any]) -> Said | None:
        if not isinstance(event.get("content"), dict) or not all(
            isinstance(event.get(key), str) for key in ("sender", "type")
        ):
            return None
        try:
            content = (await self._decrypted(room_id, event))["content"]
        except PluginError:
            content = {}
        choices = content.get(CHOICES)
        return Said(
            event["sender"],
            event["type"],
            _body(content, event["sender"], has_reply=False)[:QUOTED],
            tuple(each for each in choices if isinstance(each, str)) if isinstance(choices, list) else (),
        )

    def _remember(self, event: str, said: Said | None) -> None:
        self._said.pop(event, None)
        while len(self._said) >= REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[event] = said

    def _is_mentioned(self, content: Mapping[str, Any], body: str) -> bool:
        """Return True if a message names us: in `m.mentions`, or in its text if its client does not know these."""
        mentions, user = content.get("m.mentions"), self._user()
        if isinstance(mentions, dict):
            users = mentions.get("user_ids")
            return isinstance(users, list) and user in users
        names = {user, user[1:].partition(":")[0], self._own_name()} - {""}
        words = body.casefold()
        return any(re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", words) for name in names)

    async def _files(self, event: str, content: Mapping[str, Any]) -> tuple[InboundFile, ...]:
        if content.get("msgtype") not in FILES:
            return ()
        name = _text(content.get("filename")) or _text(content.get("body")) or "file"
        media = _text(_object(content.get("info")).get("mimetype"))
        try:
            return (InboundFile(content=await self._download(content), name=name, media=media),)
        except MatrixError as error:
            self._failed_downloads[event] = self._failed_downloads.get(event, 0) + 1
            if error.is_temporary and self._failed_downloads[event] < DOWNLOADS:
                raise
            del self._failed_downloads[event]
            raise FileUnavailable(f"The file {name[:100]!r} cannot be received: its server does not have it.") from error
        except BadAnswer as error:
            raise FileUnavailable(f"The file {name[:100]!r} cannot be received: it is too large.") from error
        except ValueError as error:
            raise FileUnavailable(f"The file {name[:100]!r} cannot be received: {error}.") from error


def _body(content: Mapping[str, Any], sender: str, *, has_reply: bool) -> str:
    """Return the text of a message, without the quotation that old clients put above a reply."""
    body, kind = _text(content.get("body")), content.get("msgtype")
    if kind in FILES:
        name = content.get("filename")
        return body if isinstance(name, str) and name != body else ""
    if has_reply:
        body = _OLD_FALLBACK.sub("", body, count=1)
    return f"* {sender} {body}" if kind == "m.emote" else body


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _seconds(millis: Any) -> float:
    """Return a time stamp of a server in seconds; 0 if it is none."""
    return millis / 1000 if isinstance(millis, int) and 0 < millis < 10**15 else 0.0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
