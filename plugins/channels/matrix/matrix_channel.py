"""The channel Matrix."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import quote

import msgspec
import structlog

from plugins.api.channel import (
    ChannelActivity,
    ChannelInbox,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.api.tool import OutputFile
from plugins.channels.matrix.encryption.encrypted_files import decrypt_file, encrypt_file
from plugins.channels.matrix.encryption.key_store import KeyStore, MissingKey
from plugins.channels.matrix.html import html_of, plain
from plugins.channels.matrix.login import ENDED, Login
from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError, of_room
from plugins.channels.matrix.reader import CHOICES, KEYCAPS, EventReader, FileUnavailable
from plugins.channels.matrix.rooms import Rooms
from plugins.channels.matrix.sync import PAUSES, Receiver
from plugins.support.errors import PluginError, ProviderError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile

if TYPE_CHECKING:
    from plugins.channels.matrix.encryption.olm_machine import OlmMachine

MOST_BYTES = 40_000
"""Bytes of a post's text and HTML. An event may have 65,536 in all, and encryption adds a third."""

TYPING_SECONDS = 20.0
"""Seconds for which the server shows typing, unless it ends earlier."""

MISSING_KEY_SECONDS = 15.0
"""Seconds after which the sender is told that the key of a message is missing. Keys often come a little later."""

MISSING_KEY = (
    "I cannot read a message of yours: its key did not reach me. I have asked your client for the key and will answer when "
    "it comes. If nothing happens, send the message again."
)
"""What the sender of such a message is told."""

MOST_INVITATIONS = 100
"""Invitations that are kept until their senders are known."""

log = structlog.get_logger("exuvia.channels")


class MatrixSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of `[channels.NAME]` with `kind = "matrix"`.

    Attributes:
        homeserver: The address of the homeserver.
        user: The account, such as `@exuvia:example.org`, for a login with `password`.
        password: The account's password. The channel logs in once and keeps the token in its folder.
        token: An access token, instead of `user` and `password`.
        rooms: Rooms that the channel joins at its start, by their ids or addresses.
        invitations: Whose invitations to rooms are accepted: those of known people, of everyone, or nobody's.
        read_receipts: Show people that their messages were read.
    """

    homeserver: str
    user: str = ""
    password: Secret | None = None
    token: Secret | None = None
    rooms: tuple[str, ...] = ()
    invitations: Literal["known", "everyone", "nobody"] = "known"
    read_receipts: bool = True


class MatrixChannel:
    """An account of Matrix."""

    name: ClassVar[str] = "matrix"
    Settings: ClassVar[type[msgspec.Struct]] = MatrixSettings
    activity_seconds: ClassVar[float] = 10.0

    def __init__(self, context: PluginContext) -> None:
        settings: MatrixSettings = context.settings
        if not settings.token and not (settings.user and settings.password):
            raise SettingsRefused("The channel needs `token`, or `user` and `password`.")
        self._settings = settings
        self._folder = context.folder
        self._client = MatrixClient(context.transport, settings.homeserver)
        self._login = Login(
            self._client,
            StateFile(context.folder / "login.json"),
            user=settings.user,
            password=settings.password,
            token=settings.token,
        )
        self._rooms = Rooms(self._client)
        self._reader = EventReader(
            self._client,
            self._rooms,
            user=lambda: self._login.user,
            own_name=lambda: self._own_name,
            decrypted=self._decrypted,
            download=self._download,
        )
        self._own_name = ""
        self._machine: OlmMachine | None = None
        self._inbox: ChannelInbox | None = None
        self._typing: set[str] = set()
        self._receiver = Receiver(
            self._client,
            StateFile(context.folder / "sync.json"),
            user=lambda: self._login.user,
            process=self._process,
            handle=self._handle,
            report=lambda problem: self._inbox.report(problem) if self._inbox is not None else None,
            renew=self._renew,
        )
        self._invitations: dict[str, str] = {}
        self._invitations_file = StateFile(context.folder / "invitations.json")
        self._is_first = True
        self._reported: set[str] = set()
        self._joining: set[str] = set()
        self._read: dict[str, str] = {}
        self._has_read = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._client.find_server()
        await self._login.enter()
        user = quote(self._login.user, safe="")
        with suppress(MatrixError):  # an account without a profile
            name = (await self._client.request("GET", f"/_matrix/client/v3/profile/{user}/displayname")).get("displayname")
            self._own_name = name if isinstance(name, str) else ""
        if find_spec("vodozemac") is not None and find_spec("cryptography") is not None:
            await self._open_machine()
        self._invitations = {room: str(inviter) for room, inviter in (await self._invitations_file.load()).items()}
        if (response := await self._receiver.open()) is not None:
            await self._note_invitations(_rooms_of(response).get("invite"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._machine is not None:
            await self._machine.close()
            self._machine = None

    async def check(self) -> str:
        """Return a sentence about the login."""
        said = f"Logged in to {self._settings.homeserver} as {self._login.user}, device {self._login.device}"
        if self._machine is None:
            return f"{said}; encrypted rooms need the extra exuvia[matrix-e2e]."
        verified = f"not verified: {self._machine.problem}" if self._machine.problem else "verified by cross-signing"
        return f"{said}, fingerprint {self._machine.fingerprint} ({verified})."

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until cancelled.

        Raises:
            PluginError: The login has ended, with how to fix it.
        """
        self._inbox = inbox
        try:
            await self._run()
        except BaseExceptionGroup as errors:
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._send_receipts())
            if self._machine is not None:  # those whose senders a process that ended would have told
                for room, event in await self._machine.untold():
                    tasks.create_task(self._tell_undecrypted(room, event))
            for room in self._settings.rooms:
                tasks.create_task(self._join(room))
            await self._receiver.run()

    # --- what a sync response has for no single message ---------------------------------------------------------------

    async def _process(self, response: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        rooms = _rooms_of(response)
        for part in ("join", "leave"):
            for room, content in (rooms.get(part) or {}).items():
                if part == "leave" or _changes_room(content):
                    self._rooms.changed(room)
        kept = await self._machine.process(response) if self._machine is not None else []
        if self._machine is not None and self._is_first:  # those that a process that ended had not passed on
            kept = await self._machine.decryptable()
        self._is_first = False
        await self._note_invitations(rooms.get("invite"))
        await self._accept_invitations()
        return kept

    async def _note_invitations(self, invited: Any) -> None:
        """Keep the invitations of a sync response."""
        if not isinstance(invited, dict) or not invited:
            return
        for room, content in invited.items():
            events = content.get("invite_state", {}).get("events", [])
            inviter = next(
                (
                    event.get("sender")
                    for event in events
                    if event.get("type") == "m.room.member" and event.get("state_key") == self._login.user
                ),
                None,
            )
            if isinstance(inviter, str) and len(self._invitations) < MOST_INVITATIONS:
                self._invitations[room] = inviter
        await self._invitations_file.save(dict(self._invitations))

    async def _accept_invitations(self) -> None:
        """Join the rooms to which somebody whose invitations count has invited us, also those of earlier."""
        for room, inviter in tuple(self._invitations.items()):
            if not await self._accepts(inviter):
                if room not in self._reported:
                    self._reported.add(room)
                    log.warning("matrix_invitation_not_accepted", room=room, inviter=inviter)
            elif room not in self._joining:
                self._joining.add(room)
                self._tasks.create_task(self._accept(room))

    async def _accepts(self, inviter: str) -> bool:
        assert self._inbox is not None
        who = self._settings.invitations
        return who == "everyone" or (who == "known" and await self._inbox.knows(inviter))

    async def _accept(self, room: str) -> None:
        """Accept an invitation, which is kept until then: the server does not repeat it."""
        await self._join(room)
        self._joining.discard(room)
        self._invitations.pop(room, None)
        await self._invitations_file.save(dict(self._invitations))

    async def _join(self, room: str) -> None:
        """Join a room. While the server has a temporary problem it is asked again."""
        for failures in count():
            try:
                await self._client.request("POST", f"/_matrix/client/v3/join/{quote(room, safe='')}")
                return
            except (MatrixError, ProviderError) as error:
                ended = isinstance(error, MatrixError) and error.code in ENDED  # `_receiver` logs in again
                if not (ended or (error.is_temporary if isinstance(error, MatrixError) else error.retryable)):
                    log.warning("matrix_room_not_joined", room=room, reason=str(error))
                    return
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])

    async def _renew(self, error: MatrixError) -> None:
        if not await self._login.renew(error):
            raise PluginError("The homeserver had deleted the channel's device; it has a new one now.")

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _handle(self, room: str, event: dict[str, Any]) -> None:
        """Pass an event on to the gateway."""
        assert self._inbox is not None
        if event["type"] in ("m.room.member", "m.room.encryption"):
            self._rooms.changed(room)
            return
        is_known = await self._inbox.knows(event["sender"])
        try:
            clear = await self._decrypted(room, event)
        except MissingKey:
            if is_known:
                await self._keep_undecrypted(room, event)
            return
        except PluginError as error:
            if isinstance(error, MatrixError | ProviderError):
                raise
            log.warning("matrix_message_not_decrypted", room=room, event_id=event["event_id"], reason=str(error))
            return
        try:
            hears_unmentioned = partial(self._inbox.knows, event["sender"], mentioned=False)
            message = await self._reader.read(room, clear, is_known=is_known, hears_unmentioned=hears_unmentioned)
        except FileUnavailable as error:
            await self._tell(room, event, str(error))
            message = None
        if message is not None:
            await self._pass_on(room, event, message, is_known=is_known)
        if self._machine is not None:
            await self._machine.done(event["event_id"])

    async def _pass_on(self, room: str, event: Mapping[str, Any], message: InboundMessage, *, is_known: bool) -> None:
        assert self._inbox is not None
        try:
            accepted = await self._inbox.receive(message)
        except MessageRejected as error:
            if error.later:
                raise
            if error.tell:
                await self._tell(room, event, str(error))
            return
        if accepted and is_known and self._settings.read_receipts:
            self._read[room] = event["event_id"]
            self._has_read.set()

    async def _send_receipts(self) -> None:
        """Tell the server what was read, the last message of each room."""
        while True:
            await self._has_read.wait()
            self._has_read.clear()
            read, self._read = self._read, {}
            for room, event in read.items():
                with suppress(MatrixError, ProviderError):
                    await self._client.request("POST", f"{of_room(room)}/receipt/m.read/{quote(event, safe='')}")

    async def _tell(self, room: str, event: Mapping[str, Any], sentence: str) -> None:
        """Tell a sender why a message was not accepted."""
        content = {"msgtype": "m.notice", "body": plain(sentence), "m.mentions": {}}
        relation = _relation(_thread_of(event), event["event_id"])
        try:
            await self._send(room, "m.room.message", f"told.{event['event_id']}", content | {"m.relates_to": relation})
        except (MatrixError, ProviderError, Undeliverable) as error:
            log.warning("matrix_sender_not_told", room=room, reason=str(error))

    # --- encryption ---------------------------------------------------------------------------------------------------

    async def _open_machine(self) -> None:
        """Open the keys of this device. The libraries are imported away from the event loop."""
        await asyncio.to_thread(import_module, "cryptography.hazmat.primitives.asymmetric.ed25519")
        machine = await asyncio.to_thread(import_module, "plugins.channels.matrix.encryption.olm_machine")
        store = KeyStore(self._folder / f"keys-{quote(self._login.device, safe='')}.sqlite")
        opened: OlmMachine = machine.OlmMachine(
            self._client, store, self._login.user, self._login.device, self._login.password
        )
        try:
            await opened.open()
        except BaseException:
            await opened.close()
            raise
        self._machine = opened

    async def _decrypted(self, room: str, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event with its content decrypted, if it is encrypted."""
        if event["type"] != "m.room.encrypted" or not event["content"]:  # a deleted one has no content
            return event
        if self._machine is None:
            raise PluginError("The room is encrypted, and the extra exuvia[matrix-e2e] is not installed.")
        return await self._machine.decrypt(room, event)

    async def _keep_undecrypted(self, room: str, event: dict[str, Any]) -> None:
        assert self._machine is not None
        if await self._machine.keep(room, event):
            self._tasks.create_task(self._tell_undecrypted(room, event))

    async def _tell_undecrypted(self, room: str, event: dict[str, Any]) -> None:
        """Tell the sender of a message whose key is missing, unless the key comes soon."""
        assert self._machine is not None
        await asyncio.sleep(MISSING_KEY_SECONDS)
        if await self._machine.is_waiting(event["event_id"]):
            log.warning("matrix_key_missing", room=room, event_id=event["event_id"])
            await self._tell(room, event, MISSING_KEY)
            await self._machine.told(room, event)

    async def _download(self, content: Mapping[str, Any]) -> bytes:
        """Return the file of a message."""
        if not isinstance(described := content.get("file"), dict):
            return await self._client.download(str(content.get("url", "")))
        hidden = await self._client.download(str(described.get("url", "")))
        return await asyncio.to_thread(decrypt_file, hidden, described)

    # --- sending ------------------------------------------------------------------------------------------------------

    def fits(self, text: str) -> bool:
        """Return True if a text fits into one event."""
        return len(text) < MOST_BYTES and sum(map(len, map(json.dumps, (plain(text), html_of(plain(text)))))) < MOST_BYTES

    async def show_activity(self, activity: ChannelActivity) -> None:
        """Show that we are typing."""
        self._typing.add(activity.chat)
        await self._type(activity.chat, {"typing": True, "timeout": int(TYPING_SECONDS * 1000)})

    async def _type(self, room: str, content: Mapping[str, Any]) -> None:
        await self._client.request("PUT", f"{of_room(room)}/typing/{quote(self._login.user, safe='')}", content)

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a part of an answer. The server recognises a part that was sent before by its transaction id."""
        try:
            sent = await self._deliver(message)
        except MatrixError as error:
            if error.code not in ENDED:
                raise _delivery_error(error) from error
            await self._renew(error)
            sent = await self._deliver(message)
        if message.chat in self._typing:
            self._typing.discard(message.chat)
            with suppress(MatrixError, ProviderError):
                await self._type(message.chat, {"typing": False})
        return sent

    async def _deliver(self, message: OutboundMessage) -> str:
        relation = _relation(message.thread, message.reply_to)
        more: dict[str, Any] = {"m.mentions": {}} | ({"m.relates_to": relation} if relation else {})
        event, text = "", plain(message.text)
        if text.strip():
            keys = [(key, choice) for key, choice in zip(KEYCAPS, message.choices, strict=False)]
            if keys:
                text += "\n\n" + " · ".join(f"{key} {plain(choice.label)}" for key, choice in keys)
                more[CHOICES] = [choice.id for _, choice in keys]
            html = html_of(text)
            formatted = {"format": "org.matrix.custom.html", "formatted_body": html} if html else {}
            content = {"msgtype": "m.text", "body": text} | formatted | more
            event = await self._send(message.chat, "m.room.message", message.id, content)
            self._reader.remember_own(event, text, tuple(choice.id for _, choice in keys))
            for key, _ in keys:
                reaction = {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": key}}
                await self._client.send(message.chat, "m.reaction", f"{message.id}.{key}", reaction)
        for number, file in enumerate(message.attachments):
            event = await self._send_file(message.chat, f"{message.id}.file{number}", file, more)
        if not event:
            raise Undeliverable("The answer has no text.")
        return event

    async def _send_file(self, room: str, transaction: str, file: OutputFile, more: dict[str, Any]) -> str:
        name = plain(file.name) or "file"
        kind = file.media.partition("/")[0]
        content: dict[str, Any] = {
            "msgtype": f"m.{kind}" if kind in ("image", "audio", "video") else "m.file",
            "body": name,
            "filename": name,
            "info": {"mimetype": file.media, "size": len(file.content)},
        }
        if (await self._encryption_of(room)) is None:
            content["url"] = await self._client.upload(file.content, file.media, name)
        else:
            hidden, described = await asyncio.to_thread(encrypt_file, file.content)
            content["file"] = described | {"url": await self._client.upload(hidden, "application/octet-stream", "")}
        return await self._send(room, "m.room.message", transaction, content | more)

    async def _send(self, room: str, kind: str, transaction: str, content: dict[str, Any]) -> str:
        """Send an event, encrypted where the room is."""
        settings = await self._encryption_of(room)
        if settings is not None:
            assert self._machine is not None
            members = (await self._rooms.get(room)).names
            content = await self._machine.encrypt(room, members, settings, kind, content)
            kind = "m.room.encrypted"
        return await self._client.send(room, kind, transaction, content)

    async def _encryption_of(self, room: str) -> dict[str, Any] | None:
        """Return the settings of a room's encryption. Nothing is ever sent in the clear to an encrypted room."""
        settings = (await self._rooms.get(room)).encryption
        if self._machine is not None:
            return await self._machine.settings_of(room, settings)
        if settings is not None:
            raise Undeliverable("The room is encrypted: install exuvia[matrix-e2e] and restart the gateway.")
        return None


def _rooms_of(response: Mapping[str, Any]) -> dict[str, Any]:
    rooms = response.get("rooms")
    return rooms if isinstance(rooms, dict) else {}


def _changes_room(content: Any) -> bool:
    """Return True if a room's part of a sync response says something about its members or its encryption."""
    state = content.get("state") if isinstance(content, dict) else None
    return bool(isinstance(state, dict) and state.get("events")) or bool(
        isinstance(content, dict) and content.get("summary")
    )


def _thread_of(event: Mapping[str, Any]) -> str:
    relation = event["content"].get("m.relates_to")
    thread = relation.get("event_id") if isinstance(relation, dict) and relation.get("rel_type") == "m.thread" else ""
    return thread if isinstance(thread, str) else ""


def _relation(thread: str, reply_to: str) -> dict[str, Any]:
    """Return the relation of a post to the thread that it belongs to and the message that it answers."""
    if thread:
        answered = {"m.in_reply_to": {"event_id": reply_to or thread}, "is_falling_back": not reply_to}
        return {"rel_type": "m.thread", "event_id": thread} | answered
    return {"m.in_reply_to": {"event_id": reply_to}} if reply_to else {}


def _delivery_error(error: MatrixError) -> PluginError:
    """Return the error that tells the gateway what to do after a refusal."""
    if error.code == "M_LIMIT_EXCEEDED" or error.status == 429:
        return TryLater(max(error.after or 0.0, 0.001), str(error))
    if error.is_temporary or not error.code:  # without a code it is a proxy's
        return error
    return Undeliverable(str(error))


@hookimpl
def register_channels() -> list[type[MatrixChannel]]:
    """Register the channel."""
    return [MatrixChannel]
