"""End-to-end encryption with vodozemac: the device's account, sessions with other devices (Olm) and of rooms (Megolm).

Every change is durable before its effect can be seen elsewhere: a session's next state before what it encrypted is sent, a
received room key before the next sync request tells the server to forget it. After a crash the last response comes again;
the messages to the device that it repeats are recognised.

Other people's devices are trusted when first seen, and are not used once their keys have changed. Requires vodozemac and
cryptography (the extra `matrix-e2e`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
import structlog
import vodozemac

from plugins.channels.matrix.encryption.cross_signing import CrossSigning
from plugins.channels.matrix.encryption.key_store import KeyStore, MissingKey
from plugins.channels.matrix.encryption.signatures import base64_of, bytes_of, is_signed, signed
from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError
from plugins.support.errors import PluginError, ProviderError

OLM = "m.olm.v1.curve25519-aes-sha2"
MEGOLM = "m.megolm.v1.aes-sha2"

_PICKLE_KEY = bytes(32)
"""Pickles need a key. A better one would stand beside them in the same file, which only its owner may read."""

ROTATE_MESSAGES = 100
ROTATE_SECONDS = 7 * 86_400.0
"""When a room gets a new key, unless the room says something else."""

MOST_SESSIONS = 5
"""Olm sessions that are kept for each device."""

RETRY_CLAIM_SECONDS = 3600.0
"""Seconds until a device is asked again for a session that it could not provide, or gets another one to repair its own."""

MOST_UNDECRYPTED = 1000
"""Messages that wait for their keys; the oldest are dropped."""

log = structlog.get_logger("exuvia.channels")

Event = dict[str, Any]


class Device(msgspec.Struct, frozen=True):
    """A device of somebody, with its public keys."""

    user: str
    id: str
    curve: str
    ed: str

    @property
    def name(self) -> str:
        """The device among all devices."""
        return f"{self.user}|{self.id}"


class _RoomKey(msgspec.Struct):
    """The key with which we encrypt for a room, and the devices that have it."""

    pickle: str
    created: float
    messages: int = 0
    shared: list[str] = []


class _SenderKey(msgspec.Struct):
    """The key of somebody else's messages in a room, or of ours."""

    pickle: str
    room: str
    sender: str


class OlmMachine:
    """Encrypts and decrypts for one device of our account."""

    def __init__(self, client: MatrixClient, store: KeyStore, user: str, device: str, password: str) -> None:
        self._client = client
        self._store = store
        self._user = user
        self._device = device
        self._account = vodozemac.Account()
        self._signing = CrossSigning(client, store, user, password)
        self._devices: dict[str, dict[str, Device]] = {}
        self._refused: dict[str, float] = {}
        self._lock = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Why other clients show the device as not verified; "" if they do not."""
        return self._signing.problem

    @property
    def fingerprint(self) -> str:
        """The device's public key, by which a person can compare it."""
        return " ".join(self._ed[place : place + 4] for place in range(0, len(self._ed), 4))

    async def open(self) -> None:
        """Load the keys; make and publish them the first time.

        Raises:
            PluginError: The device belongs to another program, which has published its keys.
            MatrixError, ProviderError: The server does not take part.
        """
        await self._store.open()
        if pickle := await self._store.get("account", "account"):
            self._account = vodozemac.Account.from_pickle(pickle, _PICKLE_KEY)
        else:
            self._keep_account()
            await self._store.commit()
        self._curve = self._account.curve25519_key.to_base64()
        self._ed = self._account.ed25519_key.to_base64()
        keys = self._device_keys()
        if await self._store.get("account", "published") is None:
            answer = await self._client.request("POST", "/_matrix/client/v3/keys/query", {"device_keys": {self._user: []}})
            there = answer.get("device_keys", {}).get(self._user, {}).get(self._device, {}).get("keys", {})
            if there and there.get(f"ed25519:{self._device}") != self._ed:
                raise PluginError(
                    f"The device {self._device} of {self._user} belongs to another program, which has published its keys: "
                    "use `user` and `password` instead of that program's token."
                )
            await self._client.request("POST", "/_matrix/client/v3/keys/upload", {"device_keys": keys})
            self._store.put("account", "published", "yes")
            await self._store.commit()
        await self._signing.sign(keys, self._sign)

    async def close(self) -> None:
        """Close the file of the keys."""
        await self._store.close()

    # --- what a sync response has for the device ----------------------------------------------------------------------

    async def process(self, response: Mapping[str, Any]) -> list[tuple[str, Event]]:
        """Take what a sync response has for the device; durable when this returns.

        Returns:
            The events that could not be decrypted earlier, and can now, by their rooms.
        """
        async with self._lock:
            lists = response.get("device_lists")
            for user in [*_list(lists, "changed"), *_list(lists, "left")]:
                self._devices.pop(user, None)
            arrived = set()
            events = _list(response.get("to_device"), "events")
            taken = {_digest(event): event for event in events if isinstance(event, dict)}
            if taken:
                before = json.loads(await self._store.get("account", "taken") or "[]")
                for digest, event in taken.items():
                    if digest not in before:
                        arrived.update(await self._take(event))
                self._store.put("account", "taken", json.dumps(list(taken)))
            await self._store.commit()
            try:
                await self._replenish(response)
            except (MatrixError, ProviderError) as error:  # the next response says again what is needed
                log.info("matrix_keys_not_uploaded", reason=str(error))
            return await self._kept_of(arrived) if arrived else []

    async def _take(self, event: Mapping[str, Any]) -> set[str]:
        """Take a message to our device. Return the session whose key it brought."""
        content, sender = event.get("content"), event.get("sender")
        if not isinstance(content, dict) or not isinstance(sender, str):
            return set()
        try:
            match event.get("type"):
                case "m.room.encrypted" if content.get("algorithm") == OLM:
                    return await self._take_olm(sender, content)
                case "m.room_key_request" if content.get("action") == "request":
                    await self._answer_request(sender, content)
                case _:
                    pass
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
            log.info("matrix_device_message_not_read", sender=sender, reason=type(error).__name__)
        return set()

    async def _take_olm(self, sender: str, content: Mapping[str, Any]) -> set[str]:
        curve, ours = content["sender_key"], content["ciphertext"].get(self._curve)
        if ours is None:
            return set()
        text = await self._decrypt_olm(curve, ours["type"], ours["body"])
        if text is None:
            await self._repair(sender, curve)
            return set()
        payload = json.loads(text)
        if (payload["sender"], payload["recipient"], payload["recipient_keys"]["ed25519"]) != (sender, self._user, self._ed):
            raise ValueError("it is for somebody else")
        inner = payload["content"]
        match payload["type"]:
            case "m.room_key" if inner["algorithm"] == MEGOLM:
                key = vodozemac.InboundGroupSession(vodozemac.SessionKey(inner["session_key"]))
            case "m.forwarded_room_key" if inner["algorithm"] == MEGOLM:
                asked = await self._store.get("request", f"{inner['room_id']}|{inner['session_id']}")
                if asked != sender:
                    raise ValueError("nobody asked for it")
                key = vodozemac.InboundGroupSession.import_session(vodozemac.ExportedSessionKey(inner["session_key"]))
            case "m.dummy":  # the other device has lost its sessions, and perhaps the rooms' keys
                await self._share_again(sender, curve)
                return set()
            case _:
                return set()
        if key.session_id != inner["session_id"]:
            raise ValueError("it is another session")
        return await self._keep_key(inner["room_id"], sender, key)

    async def _keep_key(self, room: str, sender: str, key: vodozemac.InboundGroupSession) -> set[str]:
        """Keep the key of a session, unless there is one that decrypts more."""
        name = f"{room}|{key.session_id}"
        if kept := await self._store.get("inbound", name):
            before = msgspec.json.decode(kept, type=_SenderKey)
            known = vodozemac.InboundGroupSession.from_pickle(before.pickle, _PICKLE_KEY)
            if before.sender != sender or known.first_known_index <= key.first_known_index:
                return set()
        self._store.put("inbound", name, _text(_SenderKey(key.pickle(_PICKLE_KEY), room, sender)))
        self._store.put("request", name, None)
        return {name}

    async def _decrypt_olm(self, curve: str, kind: int, body: str) -> bytes | None:
        """Return the text of an Olm message; None if no session with the device decrypts it."""
        pickles: list[str] = json.loads(await self._store.get("olm", curve) or "[]")
        message = vodozemac.AnyOlmMessage.from_parts(kind, bytes_of(body))
        for place, pickle in enumerate(pickles):
            session = vodozemac.Session.from_pickle(pickle, _PICKLE_KEY)
            try:
                text = session.decrypt(message)
            except ValueError:
                continue
            self._keep_sessions(curve, [session.pickle(_PICKLE_KEY), *pickles[:place], *pickles[place + 1 :]])
            return bytes(text)
        if (first := message.to_pre_key()) is None:
            return None
        try:
            session, text = self._account.create_inbound_session(vodozemac.Curve25519PublicKey.from_base64(curve), first)
        except ValueError:
            return None
        self._keep_account()
        self._keep_sessions(curve, [session.pickle(_PICKLE_KEY), *pickles])
        return bytes(text)

    async def _repair(self, user: str, curve: str) -> None:
        """Begin another session with a device whose messages we cannot decrypt, so that its next ones can be."""
        now, name = time.monotonic(), f"repair|{curve}"
        if self._refused.get(name, -RETRY_CLAIM_SECONDS) + RETRY_CLAIM_SECONDS > now:
            return
        self._refused[name] = now
        try:
            devices = [each for each in await self._devices_of([user]) if each.curve == curve]
            await self._begin_sessions(devices, anew=True)
            await self._send_olm([(device, "m.dummy", {}) for device in devices])
        except (MatrixError, ProviderError) as error:
            log.info("matrix_session_not_repaired", user=user, reason=str(error))

    async def _share_again(self, user: str, curve: str) -> None:
        """Send the rooms' keys to a device again with the next messages."""
        names = {device.name for device in await self._devices_of([user]) if device.curve == curve}
        for room, kept in (await self._store.all("outbound")).items():
            key = msgspec.json.decode(kept, type=_RoomKey)
            if names & set(key.shared):
                key.shared = [each for each in key.shared if each not in names]
                self._store.put("outbound", room, _text(key))

    async def _answer_request(self, user: str, content: Mapping[str, Any]) -> None:
        """Send a key of ours to a device that had got it and has lost it."""
        body, device_id = content["body"], content["requesting_device_id"]
        room, session = body["room_id"], body["session_id"]
        kept = await self._store.get("shared", f"{room}|{session}")
        inbound = await self._store.get("inbound", f"{room}|{session}")
        if not kept or not inbound or f"{user}|{device_id}" not in json.loads(kept):
            return
        sender_key = msgspec.json.decode(inbound, type=_SenderKey)
        key = vodozemac.InboundGroupSession.from_pickle(sender_key.pickle, _PICKLE_KEY)
        exported = key.export_at(key.first_known_index)
        devices = [each for each in await self._devices_of([user]) if each.id == device_id]
        if exported is None or sender_key.sender != self._user:
            return
        forwarded = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": session,
            "session_key": exported.to_base64(),
            "sender_key": self._curve,
            "sender_claimed_ed25519_key": self._ed,
            "forwarding_curve25519_key_chain": [],
        }
        await self._begin_sessions(devices)
        await self._send_olm([(device, "m.forwarded_room_key", forwarded) for device in devices])

    async def _replenish(self, response: Mapping[str, Any]) -> None:
        """Upload one-time keys and the fallback key where the server needs them."""
        counts, unused = response.get("device_one_time_keys_count"), response.get("device_unused_fallback_key_types")
        have = counts.get("signed_curve25519", 0) if isinstance(counts, dict) else None
        account: Any = self._account  # its stubs lack the fallback key
        wanted = self._account.max_number_of_one_time_keys // 2
        needs_fallback = isinstance(unused, list) and "signed_curve25519" not in unused
        if (have is None or have >= wanted) and not needs_fallback:
            return
        if have is not None and have < wanted and not self._account.one_time_keys:
            self._account.generate_one_time_keys(wanted - have)
        if needs_fallback and not account.fallback_key:
            account.generate_fallback_key()
        self._keep_account()
        await self._store.commit()
        once = {
            f"signed_curve25519:{name}": self._signed_key(key.to_base64())
            for name, key in self._account.one_time_keys.items()
        }
        fallback = {
            f"signed_curve25519:{name}": self._signed_key(key.to_base64(), fallback=True)
            for name, key in account.fallback_key.items()
        }
        body = {"one_time_keys": once} | ({"fallback_keys": fallback} if fallback else {})
        await self._client.request("POST", "/_matrix/client/v3/keys/upload", body)
        self._account.mark_keys_as_published()
        self._keep_account()
        await self._store.commit()

    # --- messages of rooms --------------------------------------------------------------------------------------------

    async def decrypt(self, room: str, event: Event) -> Event:
        """Return an encrypted event with its type and content decrypted.

        Raises:
            MissingKey: Its key is not there.
            PluginError: It can never be decrypted.
        """
        content = event["content"]
        session = content.get("session_id")
        async with self._lock:
            kept = await self._store.get("inbound", f"{room}|{session}")
            if kept is None:
                raise MissingKey("The key of the message has not arrived.")
            sender_key = msgspec.json.decode(kept, type=_SenderKey)
            try:
                key = vodozemac.InboundGroupSession.from_pickle(sender_key.pickle, _PICKLE_KEY)
                message = vodozemac.MegolmMessage.from_base64(content["ciphertext"])
                if message.message_index() < key.first_known_index:
                    raise MissingKey("The key of the message has not arrived.")
                decrypted = key.decrypt(message)
                payload = json.loads(decrypted.plaintext)
                kind, inner = payload["type"], payload["content"]
                if payload["room_id"] != room or event["sender"] != sender_key.sender:
                    raise PluginError("The message was encrypted for another room, or by somebody else.")
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                raise PluginError(f"The message cannot be decrypted: {type(error).__name__}.") from error
            if not isinstance(inner, dict) or not isinstance(kind, str):
                raise PluginError("The message cannot be decrypted: it has no content.")
            used, name = f"{room}|{session}|{decrypted.message_index}", str(event.get("event_id", ""))
            if (before := await self._store.get("used", used)) not in (None, name):
                raise PluginError(f"The message was sent before, as {before}.")
            if before is None:
                self._store.put(
                    "used", used, name
                )  # durable with the next commit; a repetition after a crash has its own id
        if "m.relates_to" in content and "m.relates_to" not in inner:
            inner = inner | {"m.relates_to": content["m.relates_to"]}
        return event | {"type": kind, "content": inner}

    async def encrypt(
        self, room: str, members: Iterable[str], settings: Mapping[str, Any], kind: str, content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the content of an `m.room.encrypted` event that all devices of the members can decrypt.

        Raises:
            MatrixError, ProviderError: The server does not take part.
        """
        async with self._lock:
            devices = [each for each in await self._devices_of(members) if each.name != f"{self._user}|{self._device}"]
            key, session = await self._room_key(room, settings, devices)
            missing = [device for device in devices if device.name not in key.shared]
            if missing:
                await self._share(room, key, session, missing)
            text = json.dumps({"type": kind, "content": content, "room_id": room}, ensure_ascii=False)
            message = session.encrypt(text.encode())
            key.pickle, key.messages = session.pickle(_PICKLE_KEY), key.messages + 1
            self._store.put("outbound", room, _text(key))
            await self._store.commit()
        encrypted = {
            "algorithm": MEGOLM,
            "ciphertext": message.to_base64(),
            "device_id": self._device,
            "sender_key": self._curve,
            "session_id": session.session_id,
        }
        return encrypted | ({"m.relates_to": content["m.relates_to"]} if "m.relates_to" in content else {})

    async def _room_key(
        self, room: str, settings: Mapping[str, Any], devices: Iterable[Device]
    ) -> tuple[_RoomKey, vodozemac.GroupSession]:
        """Return the key of a room: a new one after so many messages, so much time, or when a device has left."""
        if kept := await self._store.get("outbound", room):
            key = msgspec.json.decode(kept, type=_RoomKey)
            most, milliseconds = settings.get("rotation_period_msgs"), settings.get("rotation_period_ms")
            seconds = milliseconds / 1000 if isinstance(milliseconds, int) else ROTATE_SECONDS
            is_old = (
                key.messages >= (most if isinstance(most, int) else ROTATE_MESSAGES) or time.time() > key.created + seconds
            )
            if not is_old and set(key.shared) <= {device.name for device in devices}:
                return key, vodozemac.GroupSession.from_pickle(key.pickle, _PICKLE_KEY)
        session = vodozemac.GroupSession()
        key = _RoomKey(session.pickle(_PICKLE_KEY), time.time(), shared=[])
        await self._keep_key(room, self._user, vodozemac.InboundGroupSession(session.session_key))
        return key, session

    async def _share(self, room: str, key: _RoomKey, session: vodozemac.GroupSession, devices: list[Device]) -> None:
        """Send the key of a room to devices. Those with which no session can begin are left out for an hour."""
        ready = await self._begin_sessions(devices)
        content = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": session.session_id,
            "session_key": session.session_key.to_base64(),
        }
        await self._send_olm([(device, "m.room_key", content) for device in ready])
        key.shared = [*key.shared, *(device.name for device in ready)]
        shared = json.loads(await self._store.get("shared", f"{room}|{session.session_id}") or "[]")
        self._store.put("shared", f"{room}|{session.session_id}", json.dumps([*shared, *(device.name for device in ready)]))

    async def settings_of(self, room: str, told: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the settings of a room's encryption, from what the server told. What was once encrypted stays so."""
        kept = await self._store.get("room", room)
        if kept is None and told is not None:
            self._store.put("room", room, json.dumps(told))
        return told if told is not None else json.loads(kept) if kept else None

    # --- messages that wait for their keys ----------------------------------------------------------------------------

    async def keep(self, room: str, event: Event) -> bool:
        """Keep a message whose key is missing, and ask for the key. Durable when this returns. May be repeated if it fails.

        Returns:
            True if it is the first one that waits for this key.
        """
        name = f"{room}|{event['content'].get('session_id')}"
        is_first = False
        try:
            async with self._lock:
                waiting = await self._store.all("undecrypted")
                for old in list(waiting)[: max(0, len(waiting) - MOST_UNDECRYPTED + 1)]:
                    self._store.put("undecrypted", old, None)
                self._store.put("undecrypted", event["event_id"], json.dumps({"room": room, "event": event}))
                is_first = await self._store.get("request", name) is None
                self._store.put("request", name, event["sender"])
                await self._store.commit()
            if is_first:
                await self._request_key(room, event)
        except BaseException:
            if is_first:  # the repetition has to ask for it
                self._store.put("request", name, None)
            raise
        return is_first

    async def _request_key(self, room: str, event: Event) -> None:
        """Ask the device that sent a message for its key."""
        content = event["content"]
        device = content.get("device_id")
        request = {
            "action": "request",
            "body": {"algorithm": MEGOLM, "room_id": room, "session_id": content.get("session_id")}
            | ({"sender_key": content["sender_key"]} if isinstance(content.get("sender_key"), str) else {}),
            "request_id": uuid4().hex,
            "requesting_device_id": self._device,
        }
        await self._to_devices(
            "m.room_key_request", {event["sender"]: {device if isinstance(device, str) else "*": request}}
        )

    async def untold(self) -> list[tuple[str, Event]]:
        """Return the first kept message of each key whose sender was not told that it is missing, by their rooms."""
        first: dict[str, tuple[str, Event]] = {}
        for kept in map(json.loads, (await self._store.all("undecrypted")).values()):
            name = f"{kept['room']}|{kept['event']['content'].get('session_id')}"
            if await self._store.get("told", name) is None:
                first.setdefault(name, (kept["room"], kept["event"]))
        return list(first.values())

    async def told(self, room: str, event: Event) -> None:
        """Note that the sender of a message was told that its key is missing."""
        self._store.put("told", f"{room}|{event['content'].get('session_id')}", "yes")
        await self._store.commit()

    async def is_waiting(self, event: str) -> bool:
        """Return True if a message still waits for its key."""
        return await self._store.get("undecrypted", event) is not None

    async def done(self, event: str) -> None:
        """Forget a message that was kept and has been handled."""
        if await self.is_waiting(event):
            self._store.put("undecrypted", event, None)
            await self._store.commit()

    async def decryptable(self) -> list[tuple[str, Event]]:
        """Return the kept messages whose keys have come, by their rooms."""
        return await self._kept_of(None)

    async def _kept_of(self, sessions: set[str] | None) -> list[tuple[str, Event]]:
        """Return the kept messages of these sessions; those of all whose keys are there for None."""
        kept = []
        for each in map(json.loads, (await self._store.all("undecrypted")).values()):
            name = f"{each['room']}|{each['event']['content'].get('session_id')}"
            if name in sessions if sessions is not None else await self._store.get("inbound", name):
                kept.append(each)
        kept.sort(key=lambda each: each["event"].get("origin_server_ts", 0))
        return [(each["room"], each["event"]) for each in kept]

    # --- devices and their sessions -----------------------------------------------------------------------------------

    async def _devices_of(self, users: Iterable[str]) -> list[Device]:
        """Return all devices of some users."""
        users = list(users)
        if unknown := [user for user in users if user not in self._devices]:
            answer = await self._client.request(
                "POST", "/_matrix/client/v3/keys/query", {"device_keys": {user: [] for user in unknown}}
            )
            found = answer.get("device_keys")
            for user in unknown:
                theirs = found.get(user) if isinstance(found, dict) else None
                devices = [await self._checked(user, name, keys) for name, keys in (theirs or {}).items()]
                self._devices[user] = {device.id: device for device in devices if device is not None}
        return [device for user in users for device in self._devices.get(user, {}).values()]

    async def _checked(self, user: str, device_id: str, keys: Mapping[str, Any]) -> Device | None:
        """Return a device if its keys are its own, and those that were seen first."""
        try:
            device = Device(user, device_id, keys["keys"][f"curve25519:{device_id}"], keys["keys"][f"ed25519:{device_id}"])
            vodozemac.Curve25519PublicKey.from_base64(device.curve)
        except (KeyError, TypeError, ValueError):
            return None
        if (keys.get("user_id"), keys.get("device_id")) != (user, device_id) or not is_signed(
            keys, user, device_id, device.ed
        ):
            return None
        first = await self._store.get("device", device.name)
        if first is None:
            self._store.put("device", device.name, device.ed)
        elif first != device.ed:
            log.warning("matrix_device_changed", user=user, device=device_id)
            return None
        return device

    async def _begin_sessions(self, devices: list[Device], *, anew: bool = False) -> list[Device]:
        """Begin a session with each device that has none (`anew`: with each). Return those that have one now."""
        now = time.monotonic()
        ready = [] if anew else [device for device in devices if await self._store.get("olm", device.curve)]
        others = [
            device
            for device in devices
            if device not in ready and self._refused.get(device.name, -RETRY_CLAIM_SECONDS) + RETRY_CLAIM_SECONDS <= now
        ]
        if not others:
            return ready
        claimed: dict[str, dict[str, str]] = {}
        for device in others:
            claimed.setdefault(device.user, {})[device.id] = "signed_curve25519"
        answer = await self._client.request("POST", "/_matrix/client/v3/keys/claim", {"one_time_keys": claimed})
        for device in others:
            try:
                (key,) = answer["one_time_keys"][device.user][device.id].values()
                if not is_signed(key, device.user, device.id, device.ed):
                    raise ValueError("it is not signed")
                session = self._account.create_outbound_session(
                    vodozemac.Curve25519PublicKey.from_base64(device.curve),
                    vodozemac.Curve25519PublicKey.from_base64(key["key"]),
                )
            except (KeyError, TypeError, ValueError, AttributeError):
                self._refused[device.name] = now
                log.info("matrix_device_without_keys", user=device.user, device=device.id)
                continue
            older = json.loads(await self._store.get("olm", device.curve) or "[]")
            self._keep_sessions(device.curve, [session.pickle(_PICKLE_KEY), *older])
            ready.append(device)
        return ready

    async def _send_olm(self, messages: Iterable[tuple[Device, str, Mapping[str, Any]]]) -> None:
        """Send messages to devices with which there are sessions."""
        contents: dict[str, dict[str, Any]] = {}
        for device, kind, content in messages:
            pickles = json.loads(await self._store.get("olm", device.curve) or "[]")
            if not pickles:
                continue
            payload = {
                "type": kind,
                "content": content,
                "sender": self._user,
                "keys": {"ed25519": self._ed},
                "recipient": device.user,
                "recipient_keys": {"ed25519": device.ed},
                "sender_device_keys": self._device_keys(),
            }
            session = vodozemac.Session.from_pickle(pickles[0], _PICKLE_KEY)
            kind_of, body = session.encrypt(json.dumps(payload, ensure_ascii=False).encode()).to_parts()
            self._keep_sessions(device.curve, [session.pickle(_PICKLE_KEY), *pickles[1:]])
            contents.setdefault(device.user, {})[device.id] = {
                "algorithm": OLM,
                "sender_key": self._curve,
                "ciphertext": {device.curve: {"type": kind_of, "body": base64_of(body)}},
            }
        if contents:
            await self._store.commit()
            await self._to_devices("m.room.encrypted", contents)

    async def _to_devices(self, kind: str, contents: Mapping[str, Any]) -> None:
        path = f"/_matrix/client/v3/sendToDevice/{quote(kind, safe='')}/{uuid4().hex}"
        await self._client.request("PUT", path, {"messages": contents})

    # --- our own keys -------------------------------------------------------------------------------------------------

    def _device_keys(self) -> dict[str, Any]:
        keys = {
            "user_id": self._user,
            "device_id": self._device,
            "algorithms": [OLM, MEGOLM],
            "keys": {f"curve25519:{self._device}": self._curve, f"ed25519:{self._device}": self._ed},
        }
        return signed(keys, self._user, self._device, self._sign)

    def _signed_key(self, key: str, *, fallback: bool = False) -> dict[str, Any]:
        return signed({"key": key} | ({"fallback": True} if fallback else {}), self._user, self._device, self._sign)

    def _sign(self, content: bytes) -> str:
        return str(self._account.sign(content).to_base64())

    def _keep_account(self) -> None:
        self._store.put("account", "account", self._account.pickle(_PICKLE_KEY))

    def _keep_sessions(self, curve: str, pickles: list[str]) -> None:
        self._store.put("olm", curve, json.dumps(pickles[:MOST_SESSIONS]))


def _digest(event: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()[:32]


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
