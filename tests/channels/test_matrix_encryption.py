"""Encrypted rooms of the channel Matrix, against a real Synapse and with matrix-nio as the other person's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plugins.api.channel import Choice, InboundFile, OutboundMessage, Undeliverable
from plugins.api.tool import OutputFile
from plugins.channels.matrix import matrix_channel
from plugins.channels.matrix.encryption.encrypted_files import decrypt_file, encrypt_file
from plugins.channels.matrix.encryption.key_store import KeyStore
from plugins.channels.matrix.encryption.signatures import is_signed
from plugins.channels.matrix.matrix_channel import MISSING_KEY, MatrixChannel, MatrixSettings
from plugins.channels.matrix.reader import KEYCAPS
from plugins.support.errors import PluginError
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context
from tests.channels.matrix_rooms import person, settings_for, synapse
from tests.channels.test_matrix import Opened, opened, post
from tests.servers.synapse_server import NioPerson, Person, SynapseServer, required
from tests.waiting import deadline

__all__ = ["synapse"]

required()

_NUMBERS = count(1)


class Scene(NamedTuple):
    """The channel's account, and Nia with matrix-nio."""

    bot: Person
    nia: NioPerson
    settings: MatrixSettings

    async def room(self, channel: Opened) -> str:
        """Return an encrypted room of the two, where both can read."""
        room = str(await self.nia.ask("room", [self.bot.user]))
        await self.joined(room)
        assert not channel.running.done()
        return room

    async def joined(self, room: str) -> None:
        async with deadline():
            while self.bot.user not in await self.nia.ask("members", room):
                await asyncio.sleep(0.02)

    async def say(self, room: str, text: str) -> str:
        return str(await self.nia.ask("say", room, {"msgtype": "m.text", "body": text}))


@asynccontextmanager
async def scene(server: SynapseServer, folder: Path) -> AsyncIterator[Scene]:
    name = f"nia{next(_NUMBERS)}"
    await asyncio.to_thread(server.register, name)
    async with person(server, "bot") as bot, NioPerson(server.url, name, folder / "nio") as nia:
        yield Scene(bot, nia, settings_for(server, bot))


async def test_messages_and_files_are_encrypted_both_ways(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as on, opened(tmp_path / "channel", on.settings) as channel:
        room = await on.room(channel)
        event = await on.say(room, "Is there tea?")
        arrived = await channel.arrival()
        assert (arrived.id, arrived.text, arrived.sender) == (event, "Is there tea?", on.nia.user)
        await on.nia.ask("file", room, "plan.txt", "secret plan")
        assert (await channel.arrival()).attachments == (
            InboundFile(content=b"secret plan", name="plan.txt", media="text/plain"),
        )
        choices = (Choice(id="/approve a once", label="Once"), Choice(id="/deny a", label="Deny"))
        answer = post(room, "There is **tea**.", choices=choices, reply_to=event)
        sent = await channel.channel.deliver(answer)
        assert await channel.channel.deliver(answer) == sent
        file = OutputFile(content=b"1,2", media="text/csv", name="plan.csv")
        await channel.channel.deliver(post(room, "", 2, attachments=(file,)))
        text, csv = await on.nia.posts(room, on.bot.user, 2)
        assert (text["event_id"], text["encrypted"]) == (sent, True)
        assert text["content"]["formatted_body"].startswith("<p>There is <strong>tea</strong>.</p>")
        assert "url" not in csv["content"]
        assert await on.nia.ask("read_file", csv["event_id"]) == "1,2"
        stored = [
            each for each in await on.bot.events(room, on.bot.user) if each["type"] not in ("m.room.member", "m.reaction")
        ]
        assert [each["type"] for each in stored] == ["m.room.encrypted"] * 2
        assert all("body" not in each["content"] for each in stored)


async def test_choices_of_an_encrypted_question_are_found_after_a_restart(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as on, person(synapse) as ana:
        async with opened(tmp_path / "channel", on.settings) as channel:
            encryption = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
            room = await ana.room(on.bot.user, initial_state=[encryption])
            async with deadline():
                while on.bot.user not in await ana.members(room):
                    await asyncio.sleep(0.02)
            choices = (Choice(id="/approve a once", label="Once"), Choice(id="/deny a", label="Deny"))
            sent = await channel.channel.deliver(post(room, choices=choices))
        async with opened(tmp_path / "channel", on.settings) as channel:
            await ana.react(room, sent, KEYCAPS[1])
            assert (await channel.arrival()).choice == "/deny a"


async def test_keys_survive_restarts_and_messages_of_meanwhile_arrive(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as on:
        async with opened(tmp_path / "channel", on.settings) as channel:
            room = await on.room(channel)
            await on.say(room, "first")
            assert (await channel.arrival()).text == "first"
            before = await channel.channel.check()
        for number in range(3):
            await on.say(room, f"meanwhile {number}")
        async with opened(tmp_path / "channel", on.settings) as channel:
            texts = [""]
            while texts[-1] != "meanwhile 2":
                texts.append((await channel.arrival()).text)
            assert [text for text in texts if text.startswith("mean")] == [f"meanwhile {number}" for number in range(3)]
            assert await channel.channel.check() == before
            for number in range(3):
                await channel.channel.deliver(post(room, f"answer {number}", number))
            answers = await on.nia.posts(room, on.bot.user, 3)
    assert [each["content"]["body"] for each in answers] == [f"answer {number}" for number in range(3)]
    (keys,) = tmp_path.rglob("keys-*.sqlite")
    assert keys.stat().st_mode & 0o777 == 0o600


async def test_the_device_and_its_keys_are_kept_when_the_token_expires(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as on, opened(tmp_path / "channel", on.settings) as channel:
        room = await on.room(channel)
        await on.say(room, "first")
        assert (await channel.arrival()).text == "first"
        before, login = await channel.channel.check(), json.loads(next(tmp_path.rglob("login.json")).read_text())
        synapse.expire(on.bot.user, login["device"])
        await on.say(room, "second")
        await channel.channel.deliver(post(room, "answer"))  # at the same time as the sync request logs in again
        assert (await channel.arrival()).text == "second"
        (answer,) = await on.nia.posts(room, on.bot.user, 1)
        assert (answer["content"]["body"], answer["encrypted"]) == ("answer", True)
        assert await channel.channel.check() == before
        again = json.loads(next(tmp_path.rglob("login.json")).read_text())
        assert (again["device"], again["token"] != login["token"]) == (login["device"], True)
        devices = (await on.bot.ask("GET", "/_matrix/client/v3/devices"))["devices"]
        assert [each["device_id"] for each in devices].count(login["device"]) == 1
        assert not channel.running.done()
    synapse.expire(on.bot.user, login["device"])  # while it is closed, too
    async with opened(tmp_path / "channel", on.settings) as channel:
        assert await channel.channel.check() == before


async def test_the_device_is_verified_by_cross_signing(synapse: SynapseServer, tmp_path: Path) -> None:
    async with person(synapse, "bot") as bot, opened(tmp_path, settings_for(synapse, bot)) as channel:
        assert "verified by cross-signing" in await channel.channel.check()
        answer = await bot.ask("POST", "/_matrix/client/v3/keys/query", {"device_keys": {bot.user: []}})
        signing = answer["self_signing_keys"][bot.user]
        (public,), (master,) = signing["keys"].values(), answer["master_keys"][bot.user]["keys"].values()
        assert is_signed(signing, bot.user, master, master)
        (device,) = answer["device_keys"][bot.user].values()
        assert is_signed(device, bot.user, public, public)
        assert not is_signed(device | {"device_id": "OTHER"}, bot.user, public, public)
    token = json.loads(next(tmp_path.rglob("login.json")).read_text())["token"]
    settings = MatrixSettings(homeserver=synapse.url, token=Secret(token))
    async with make_context(tmp_path / "other", settings) as context:
        other = MatrixChannel(context)
        with pytest.raises(PluginError, match="belongs to another program"):
            await other.__aenter__()


async def test_an_account_whose_cross_signing_is_somebodys_says_so(synapse: SynapseServer, tmp_path: Path) -> None:
    async with person(synapse, "bot") as bot:
        async with opened(tmp_path / "first", settings_for(synapse, bot)):
            pass
        async with opened(tmp_path / "second", settings_for(synapse, bot)) as channel:
            assert "only they can verify this device" in await channel.channel.check()


async def test_a_message_without_its_key_is_told_kept_and_answered_when_the_key_comes(
    synapse: SynapseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_channel, "MISSING_KEY_SECONDS", 0.1)
    lost: list[dict[str, Any]] = []
    async with scene(synapse, tmp_path) as on:
        async with opened(tmp_path / "channel", on.settings) as channel:
            room = await on.room(channel)
            machine = channel.channel._machine
            assert machine is not None

            async def lose(event: Any) -> set[str]:
                lost.append(event)
                return set()

            monkeypatch.setattr(machine, "_take", lose)
            await on.say(room, "Is there tea?")
            told = await on.nia.posts(room, on.bot.user, 1)
            assert told[0]["content"]["body"] == MISSING_KEY
            await on.say(room, "Hello?")  # with the same key: told once
            assert channel.inbox.arrived.empty()
        async with opened(tmp_path / "channel", on.settings) as channel:
            machine = channel.channel._machine
            assert machine is not None
            process = machine.process

            async def with_the_lost(response: dict[str, Any]) -> Any:
                monkeypatch.setattr(machine, "process", process)
                return await process(response | {"to_device": {"events": lost}})

            await machine._store.commit()
            machine._store.put("account", "taken", "[]")
            monkeypatch.setattr(machine, "process", with_the_lost)
            await on.say(room, "last")
            texts = [each.text for each in [await channel.arrival() for _ in range(3)]]
            assert sorted(texts) == ["Hello?", "Is there tea?", "last"]
            async with deadline():
                while await machine._store.all("undecrypted"):
                    await asyncio.sleep(0.02)
            assert len(await on.nia.posts(room, on.bot.user)) == 1


async def test_an_encrypted_room_is_never_answered_in_the_clear(
    synapse: SynapseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(synapse, tmp_path) as on:
        async with opened(tmp_path / "channel", on.settings) as channel:
            room = await on.room(channel)
            await channel.channel.deliver(post(room))
        monkeypatch.setattr(matrix_channel, "find_spec", lambda _: None)  # as without the extra
        async with opened(tmp_path / "channel", on.settings) as channel:
            with pytest.raises(Undeliverable, match=r"install exuvia\[matrix-e2e\]"):
                await channel.channel.deliver(post(room, number=2))
            assert "need the extra" in await channel.channel.check()


async def test_a_server_cannot_take_the_encryption_of_a_room_away(
    synapse: SynapseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(synapse, tmp_path) as on:
        async with opened(tmp_path / "channel", on.settings) as channel:
            room = await on.room(channel)
            await channel.channel.deliver(post(room))
        async with opened(tmp_path / "channel", on.settings) as channel:

            async def nothing(_: str) -> None:
                return None

            monkeypatch.setattr(channel.channel._rooms, "_encryption", nothing)
            await channel.channel.deliver(post(room, "still secret", 2))
            answers = await on.nia.posts(room, on.bot.user, 2)
    assert [each["encrypted"] for each in answers] == [True, True]


async def test_a_message_that_is_sent_again_by_the_server_is_not_taken_twice(synapse: SynapseServer, tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with scene(synapse, tmp_path) as on, opened(tmp_path / "channel", on.settings, inbox) as channel:
        room = await on.room(channel)
        event = await on.say(room, "once")
        assert (await channel.arrival()).id == event
        stored = await on.bot.ask("GET", f"/_matrix/client/v3/rooms/{room}/event/{event}")
        await channel.channel._handle(room, stored | {"event_id": "$another"})
        machine = channel.channel._machine
        assert machine is not None
        with pytest.raises(PluginError, match="by somebody else"):
            await machine.decrypt(room, stored | {"sender": "@eve:test"})
        await on.say(room, "last")
        assert (await channel.arrival()).text == "last"


def test_a_file_that_was_changed_is_refused() -> None:
    hidden, description = encrypt_file(b"content")
    assert decrypt_file(hidden, description) == b"content"
    for changed, described in (
        (hidden + b"x", description),
        (hidden, {}),
        (hidden, description | {"iv": 3}),
        (hidden, description | {"key": {"k": "%"}}),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            decrypt_file(changed, described)


async def test_what_was_not_committed_is_not_kept(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    await store.open()
    store.put("a", "1", "one")
    store.put("a", "2", "two")
    await store.commit()
    store.put("a", "2", None)
    store.put("a", "3", "three")
    assert (await store.get("a", "2"), await store.all("a")) == (None, {"1": "one", "3": "three"})
    await store.close()
    store = KeyStore(tmp_path / "keys.sqlite")
    await store.open()
    assert await store.all("a") == {"1": "one", "2": "two"}
    await store.close()


async def test_a_room_gets_a_new_key_when_somebody_leaves(synapse: SynapseServer, tmp_path: Path) -> None:
    async with (
        scene(synapse, tmp_path / "nia") as on,
        scene(synapse, tmp_path / "ben") as other,
        opened(tmp_path / "channel", on.settings) as channel,
    ):
        room = str(await on.nia.ask("room", [on.bot.user, other.nia.user]))
        await other.nia.ask("join", room)
        await on.joined(room)

        async def session(number: int) -> str:
            await channel.channel.deliver(OutboundMessage(id=f"a/{number}", chat=room, text=f"answer {number}"))
            return str((await on.bot.events(room, on.bot.user))[-1]["content"]["session_id"])

        first, second = await session(1), await session(2)
        await on.nia.posts(room, on.bot.user, 2)
        assert [each["content"]["body"] for each in await other.nia.posts(room, on.bot.user, 2)] == [
            "answer 1",
            "answer 2",
        ]
        await on.nia.ask("kick", room, other.nia.user)
        async with deadline():
            while other.nia.user in (await channel.channel._rooms.get(room)).names:
                await asyncio.sleep(0.02)
        third = await session(3)
    assert first == second != third


async def test_a_surrogate_of_another_server_does_not_prevent_later_commits(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    await store.open()
    store.put("request", "room|\ud800", "@eve\udfff:example.org")
    await store.commit()
    store.put("a", "1", "one")
    await store.commit()
    assert (await store.get("request", "room|\ud800"), await store.get("a", "1")) == ("@eve?:example.org", "one")
    await store.close()


async def test_the_write_ahead_log_of_the_keys_stays_small(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    await store.open()
    for number in range(300):
        store.put("account", "account", f"{number}" + "x" * 4000)
        await store.commit()
    assert await store.get("account", "account") == "299" + "x" * 4000
    assert (tmp_path / "keys.sqlite-wal").stat().st_size < 512 * 1024
    await store.close()
