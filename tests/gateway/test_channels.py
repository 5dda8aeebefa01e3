"""A plugin's channel over a real socket: each line is a message, and answers come back as lines."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from benchmarks.stage import Model, Stage, says
from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.conversations.channels import channel_runner, reply_delivery
from gateway.conversations.channels.channel_inbox import TEXT_BYTES, GatewayChannelInbox
from gateway.conversations.channels.pairings import Pairings
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.senders import MOST_REPORTED, Senders
from gateway.conversations.routing import switchboard
from gateway.conversations.routing.chat import CORRECTION
from gateway.conversations.routing.switchboard import Switchboard
from plugins.api.channel import Channel, InboundFile, InboundMessage, MessageRejected, OutboundMessage
from plugins.testing.contexts import ManualClock
from sessions.events.events import MessageWithdrawn, ReplyDelivered, TurnStarted
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.store.protocols import Blobs
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN, Gateway, gateway, replies_wait, syncs_wait
from tests.shelf import Shelf
from tests.stories import received
from tests.waiting import deadline, until


@pytest.fixture
async def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Elsewhere]:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    monkeypatch.setattr(reply_delivery, "PAUSES", (0.05, 0.06, 0.07))
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.05)
    service = Elsewhere()
    await service.open()
    yield service
    service.close()


@pytest.fixture
def switchboards(monkeypatch: pytest.MonkeyPatch) -> list[Switchboard]:
    """Collect the switchboards of the gateways that a test starts."""
    made: list[Switchboard] = []
    enter = Switchboard.__aenter__

    async def note(self: Switchboard) -> Switchboard:
        made.append(self)
        return await enter(self)

    monkeypatch.setattr(Switchboard, "__aenter__", note)
    return made


@asynccontextmanager
async def serving(
    home: Path, service: Elsewhere, *, senders: str = '"lines:ana" = "owner"', settings: dict[str, Any] | None = None
) -> AsyncIterator[Gateway]:
    file = f'[plugins]\nallow = ["lines"]\nsenders = {{ {senders} }}\n[plugins.lines]\nport = {service.port}\n'
    async with gateway(home, file=file, settings={"agent.model": "scripted:echo", **(settings or {})}) as g:
        yield g


def lines_of(g: Gateway) -> list[dict[str, Any]]:
    return [line for lines in g.journals().values() for line in lines]


async def until_noted(g: Gateway, kind: str, count: int = 1) -> list[dict[str, Any]]:
    async with deadline():
        while len(found := [line for line in lines_of(g) if line["kind"] == kind]) < count:
            await asyncio.sleep(0.02)
    return found


async def test_a_message_comes_in_and_its_answer_goes_back_to_its_room(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("hello")
        taken, answer = await elsewhere.hear(), await elsewhere.hear()
        (delivered,) = await until_noted(g, "reply_delivered")

    assert taken == {"ok": "1", "new": True}
    assert (answer["room"], answer["text"]) == ("kitchen", "hello")
    (received,) = [line for line in lines_of(g) if line["kind"] == "message_received"]
    assert {name: received[name] for name in ("id", "sender", "channel", "chat", "client", "reply_to")} == {
        "id": "lines:1",
        "sender": "owner",
        "channel": "lines",
        "chat": "private",
        "client": "ana",
        "reply_to": "kitchen",
    }
    assert lines_of(g)[0]["key"] == "lines:kitchen"
    (replied,) = [line for line in lines_of(g) if line["kind"] == "model_replied"]
    assert (delivered["of"], delivered["channel"]) == (replied["seq"], "lines")
    assert delivered["receipt"] == f"seen {answer['id']}"


async def test_the_same_id_again_is_one_message(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("hello")
        await elsewhere.hear(), await elsewhere.hear()
        await elsewhere.say("hello")
        assert await elsewhere.hear() == {"ok": "1", "new": False}
        await elsewhere.say("something else")
        refused = await elsewhere.hear()

    assert refused["no"] == "1"
    assert refused["later"] is False
    assert len([line for line in lines_of(g) if line["kind"] == "message_received"]) == 1


async def test_a_message_of_a_channel_is_taken_once_it_is_durable(
    tmp_path: Path, elsewhere: Elsewhere, texts: list[str]
) -> None:
    async with serving(tmp_path / "home", elsewhere, settings={"gateway.token": TOKEN}) as g:
        client = await g.connect()
        await elsewhere.say("hello")
        await elsewhere.until_heard(room="kitchen")
        with syncs_wait() as go_on:
            await elsewhere.say("and this?", id_="2")
            await until(lambda: "and this?" in texts)
            await client.round_trips()
            assert elsewhere.heard.empty()
            go_on.set()
            assert await elsewhere.hear() == {"ok": "2", "new": True}


async def test_an_answer_is_delivered_once_it_is_durable() -> None:
    stage, delivered = Stage(Model(says("hello"))), list[tuple[str, bool]]()
    stage.log.steps = 50

    class Room:
        name = "lines"

        async def deliver(self, delivery: OutboundMessage) -> str:
            of = int(delivery.id.rpartition("/")[2])
            delivered.append((delivery.text, of <= stage.recorder.durable))
            return "seen"

    delivering = ReplyDelivery(lambda _: cast(Channel, Room()), stage.clock.now, lambda: None, cast(Blobs, None))
    delivering.opened(stage.recorder)
    async with stage.playing():
        message = msgspec.structs.replace(received("hi"), channel="lines", reply_to="kitchen")
        stage.receive(message)
        await stage.until(lambda: bool(stage.told(ReplyDelivered)))
    await delivering.close()
    assert delivered == [("hello", True)]


async def test_files_and_the_message_replied_to_come_with_a_message(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        files = {"../notes.txt": "tea"}
        await elsewhere.say("what is this?", files=files, reply="Here is\nthe list.", thread="17")
        answer = await elsewhere.until_heard(room="kitchen")
        await elsewhere.say("what is this?", files=files, reply="Here is\nthe list.", thread="17")
        await elsewhere.until_heard(ok="1", new=False)
        await elsewhere.say("/status", id_="2", files=files)
        refused = await elsewhere.until_heard(no="2")
        await elsewhere.say("/whoami", id_="3", reply="/status")
        assert "owner" in (await elsewhere.until_heard(room="kitchen"))["text"]

    assert answer["thread"] == "17"
    (first,) = (line for line in lines_of(g) if line.get("attachments"))
    assert first["text"] == "> Here is\n> the list.\n\nwhat is this?"
    assert [(file["name"], file["bytes"]) for file in first["attachments"]] == [("notes.txt", 3)]
    assert (g.home / "attachments" / first["attachments"][0]["sha256"]).read_text() == "tea"
    assert (refused["no"], refused["why"]) == ("2", "A command takes no attachments.")


async def test_each_thread_of_a_chat_is_a_conversation_of_its_own(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        for number, place in enumerate(({}, {"thread": "17"}, {"thread": "18"}, {"room": "kitchen\n17"}, {"thread": "17"})):
            await elsewhere.say(f"text {number}", id_=str(number), **place)
            answer = await elsewhere.until_heard(text=f"text {number}")
            assert answer.get("thread", "") == place.get("thread", "")
    assert len(g.journals()) == 4


async def test_a_subagent_of_a_group_is_told_nothing_private_and_its_result_goes_to_the_group(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("The code of the safe is 4711.\n")
    async with serving(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("/spawn Count the safes.", sender="mallory", group=True)
        await elsewhere.until_heard(no="1")
        await elsewhere.say("/spawn Count the cups.", id_="2", group=True)
        await until_noted(g, "child_ended")
        await until_noted(g, "reply_delivered", 2)  # of the command, and of the turn with the result
        (started,) = [line for line in lines_of(g) if line["kind"] == "child_started"]
        assert (started["task"], started["chat"], started["reply_to"]) == ("Count the cups.", "group", "kitchen")
        (result,) = [line for line in lines_of(g) if line.get("id", "").startswith("child:")]
        assert (result["chat"], result["channel"], result["reply_to"]) == ("group", "lines", "kitchen")
        (child,) = [lines for lines in g.journals().values() if lines[0]["key"] == started["child"]]
        assert [line["chat"] for line in child if line["kind"] == "message_received"] == ["group"]
        assert "4711" not in json.dumps(child)
    assert [each["room"] for each in await elsewhere.rest()] == ["kitchen", "kitchen"]


async def test_a_message_of_a_group_to_somebody_else_is_ignored(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("Ben, is there tea?", group=True, mentioned=False)
        assert await elsewhere.hear() == {"ok": "1", "new": False}
        await elsewhere.say("psst", id_="2", mentioned=False)
        await elsewhere.until_heard(text="psst")
    assert [line["text"] for line in lines_of(g) if line["kind"] == "message_received"] == ["psst"]


async def test_an_edited_message_that_waits_for_its_turn_is_replaced(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with replies_wait(0) as go_on:
        async with serving(tmp_path / "home", elsewhere) as g:
            await elsewhere.say("first")
            await elsewhere.say("secnd", id_="2")
            await elsewhere.until_heard(ok="2")
            await elsewhere.say("second", id_="2-at-12:00", edits="2")
            assert await elsewhere.until_heard(ok="2-at-12:00") == {"ok": "2-at-12:00", "new": True}
            await elsewhere.say("second, really", id_="2-at-12:01", edits="2")
            assert await elsewhere.until_heard(ok="2-at-12:01") == {"ok": "2-at-12:01", "new": True}
            go_on.set()
            await elsewhere.until_heard(text="second, really")
            await elsewhere.say("second", id_="2-at-12:00", edits="2")  # an edit that comes again
            assert await elsewhere.until_heard(ok="2-at-12:00") == {"ok": "2-at-12:00", "new": False}
        assert [line["text"] for line in await elsewhere.rest()] == ["first", "second, really"]
        assert len([line for line in lines_of(g) if line["kind"] == "turn_started"]) == 2


async def test_an_edited_message_that_waits_in_the_session_before_new_is_replaced_there(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    home = tmp_path / "home"
    slow = {"providers.scripted.delay_ms": 60_000.0, "gateway.stop_within": "1s"}
    async with serving(home, elsewhere, settings=slow) as g:
        await elsewhere.say("first")
        await elsewhere.say("secnd", id_="2")
        await elsewhere.say("/new", id_="3")
        await elsewhere.say("third", id_="4")
        await elsewhere.until_heard(ok="4")
        await elsewhere.say("second", id_="2-at-12:00", edits="2")
        assert await elsewhere.until_heard(ok="2-at-12:00") == {"ok": "2-at-12:00", "new": True}
        waiting = g.journals()
    elsewhere.hang_up()
    async with serving(home, elsewhere) as g:  # and it still does after a restart
        answers = set[str]()
        while not answers >= {"first", "second", "third"}:  # and the answer of /new, if it was not delivered before
            answers.add((await elsewhere.until_heard(room="kitchen"))["text"])
    said = [[line["text"] for line in lines if line["kind"] == "message_received"] for lines in g.journals().values()]
    assert said == [["first", "secnd", "/new", "second"], ["third"]]
    assert len(waiting) == 2
    assert "secnd" not in answers


async def test_an_edit_of_a_message_that_was_answered_is_a_correction_that_says_so(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    home = tmp_path / "home"
    async with serving(home, elsewhere):
        await elsewhere.say("tee, please")
        await elsewhere.until_heard(text="tee, please")
        await elsewhere.say("tea, please", id_="1-at-12:00", edits="1")
        corrected = f"{CORRECTION}\n\ntea, please"
        await elsewhere.until_heard(text=corrected)
        await elsewhere.say("/whoami", id_="1-at-12:01", edits="1")
        assert "owner" in (await elsewhere.until_heard(room="kitchen"))["text"]
        await elsewhere.say("what was not taken before", id_="0-at-12:00", edits="0")
        await elsewhere.until_heard(text="what was not taken before")
    elsewhere.hang_up()
    async with serving(home, elsewhere) as g:  # known after a restart too
        await elsewhere.say("tea, please", id_="1-at-12:00", edits="1")
        assert await elsewhere.until_heard(ok="1-at-12:00", new=False)
    received = [line for line in lines_of(g) if line["kind"] == "message_received"]
    assert [line["text"] for line in received] == ["tee, please", corrected, "/whoami", "what was not taken before"]
    assert not any("edits" in line for line in received)


async def test_a_deleted_message_that_waits_for_its_turn_is_withdrawn(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with replies_wait(0) as go_on:
        async with serving(tmp_path / "home", elsewhere) as g:
            await elsewhere.say("first")
            await elsewhere.say("second", id_="2")
            await elsewhere.say("third", id_="3")
            await elsewhere.until_heard(ok="3")
            await elsewhere.say("", id_="gone", deletes="2", mentioned=False)
            assert await elsewhere.until_heard(ok="gone") == {"ok": "gone", "new": True}
            others: dict[str, dict[str, Any]] = {
                "again": {"deletes": "2"},
                "odd": {"deletes": "9"},
                "far": {"deletes": "3", "room": "hall"},
                "eve": {"deletes": "3", "sender": "eve"},
            }
            for id_, fields in others.items():
                await elsewhere.say("", id_=id_, **fields)
                assert await elsewhere.until_heard(ok=id_) == {"ok": id_, "new": False}
            go_on.set()
            await elsewhere.until_heard(text="third")
            await elsewhere.say("", id_="late", deletes="3")
            assert await elsewhere.until_heard(ok="late") == {"ok": "late", "new": False}
        assert [line["text"] for line in await elsewhere.rest()] == ["first", "third"]
        (withdrawn,) = (line for line in lines_of(g) if line["kind"] == "message_withdrawn")
        assert withdrawn["by"] == "ana"
        assert len(g.journals()) == 1


@pytest.mark.parametrize("edited", [False, True])
async def test_a_message_that_is_withdrawn_or_replaced_before_it_is_durable_starts_no_turn(*, edited: bool) -> None:
    stage = Stage(Model(says("second")))
    stage.log.steps = 50
    message = msgspec.structs.replace(received("first", "lines:1"), channel="lines", reply_to="kitchen")
    async with stage.playing():
        stage.receive(message)
        for _ in range(5):  # the conversation waits for the disk by now
            await asyncio.sleep(0)
        if edited:
            stage.receive(msgspec.structs.replace(message, id="lines:2", text="second", edits="lines:1"))
        else:
            stage.recorder.append(MessageWithdrawn(of=2, by="ana"), urgent=True)
        await stage.until_settled()
        for _ in range(100):
            await asyncio.sleep(0)
        await stage.until_settled()
    assert [turn.takes for turn in stage.told(TurnStarted)] == ([(3,)] if edited else [])


def inbox(configured: Settings, home: Path) -> GatewayChannelInbox:
    """Return the inbox of the channel `lines`, which hands no message on."""
    pairings = Pairings(Journals(home, home / "quarantine", Committer()), ManualClock().now)
    senders = Senders(configured, pairings, ManualClock())
    return GatewayChannelInbox(
        "lines",
        cast(Switchboard, None),
        configured,
        cast(Blobs, None),
        senders=senders,
        questions=OpenQuestions(cast(RememberedRules, None)),
        delivery=cast(ReplyDelivery, None),
    )


async def test_a_message_of_a_channel_is_bounded(tmp_path: Path) -> None:
    settings = Settings(load_config(None, environment={}, overrides={"plugins": {"senders": {"lines:ana": "owner"}}}))
    desk = inbox(settings, tmp_path)
    small, large = InboundFile(content=b"x"), InboundFile(content=b"x" * (20 * 1024 * 1024 + 1))
    for message, reason in (
        (InboundMessage(id="1", sender="ana", chat="kitchen", text="é" * (TEXT_BYTES // 2 + 1)), "at most 256 KiB"),
        (InboundMessage(id="1", sender="ana", chat="kitchen", text="", attachments=(small,) * 21), "at most 20 attachments"),
        (
            InboundMessage(id="1", sender="ana", chat="kitchen", text="", attachments=(large,)),
            "attachment is 20971520 bytes",
        ),
    ):
        with pytest.raises(MessageRejected, match=reason) as refused:
            await desk.receive(message)
        assert not refused.value.later


async def test_a_bounded_number_of_unknown_senders_is_logged(tmp_path: Path) -> None:
    unpaired = {"channels": {"lines": {"kind": "lines", "pairing": False}}}
    desk = inbox(Settings(load_config(None, environment={}, overrides=unpaired)), tmp_path)
    with capture_logs() as logged:
        for number in range(MOST_REPORTED + 10):
            for _ in range(2):
                with pytest.raises(MessageRejected, match="You are not known to this gateway"):
                    await desk.receive(InboundMessage(id="1", sender=str(number), chat="kitchen", text="hi"))
    assert [line["sender"] for line in logged] == [str(number) for number in range(MOST_REPORTED)]


@pytest.mark.parametrize("senders", ["", '"lines:bob" = "owner"', '"lines:ana" = "nobody"', '"other:*" = "owner"'])
async def test_senders_that_are_not_configured_are_ignored(tmp_path: Path, elsewhere: Elsewhere, senders: str) -> None:
    async with serving(tmp_path / "home", elsewhere, senders=senders) as g:
        await elsewhere.say("/status")
        refused = await elsewhere.hear()

    assert (refused["no"], refused["why"].partition(".")[0]) == ("1", "You are not known to this gateway")
    assert g.journals() == {}


async def test_a_star_admits_every_sender_of_the_channel_as_that_person(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere, senders='"lines:*" = "owner"'):
        await elsewhere.say("hi", sender="anybody", room="a room with spaces")
        await elsewhere.hear()
        assert (await elsewhere.hear())["room"] == "a room with spaces"


async def test_commands_and_failed_turns_are_answered_too(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere, settings={"agent.model": "scripted:gone"}):
        await elsewhere.say("/whoami")
        await elsewhere.hear()
        assert "owner" in (await elsewhere.hear())["text"]
        await elsewhere.say("hello", id_="2")
        await elsewhere.hear()
        assert "gone" in (await elsewhere.hear())["text"]


async def test_what_was_not_delivered_when_the_gateway_ended_is_delivered_after_the_next_start(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    home = tmp_path / "home"
    with replies_wait(0) as go_on:
        async with serving(home, elsewhere) as g:
            await elsewhere.say("hello")
            await elsewhere.hear()
            elsewhere.close()
            elsewhere.hang_up()
            go_on.set()
            await until_noted(g, "turn_ended")
        assert elsewhere.heard.empty()
        assert [line["kind"] for line in lines_of(g)][-1] == "turn_ended"

        await elsewhere.open()
        async with serving(home, elsewhere) as g:
            answer = await elsewhere.hear()
            (delivered,) = await until_noted(g, "reply_delivered")

        (replied,) = [line for line in lines_of(g) if line["kind"] == "model_replied"]
        assert (answer["text"], delivered["of"]) == ("hello", replied["seq"])
        assert answer["id"].endswith(f"/{replied['seq']}"), "by which a service that got it before knows it"


async def test_a_channel_that_ends_is_reopened_and_reported_meanwhile(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("one")
        await elsewhere.hear(), await elsewhere.hear()
        go_on = asyncio.Event()

        class Held:
            """The module `asyncio`, whose pauses end when the test says so."""

            def __getattr__(self, name: str) -> Any:
                return getattr(asyncio, name)

            async def sleep(self, _: float) -> None:
                await go_on.wait()

        monkeypatch.setattr(channel_runner, "asyncio", Held())
        elsewhere.hang_up()
        status, client = "", await g.connect()
        async with deadline():
            while "The channel 'lines' is closed and will be opened again: it stopped listening." not in status:
                status = await client.command("/status")
        go_on.set()
        await elsewhere.say("two", id_="2")
        await elsewhere.hear()
        assert (await elsewhere.hear())["text"] == "two"
        assert elsewhere.connections == 2
        status = await client.command("/status")
        assert "lines connected since" in status
        assert "The channel" not in status


def tried() -> list[tuple[str, float]]:
    """Return the text and the time of each attempted delivery."""
    found: list[tuple[str, float]] = sys.modules["exuvia_lines"].Lines.tried
    return found


async def said_and_taken(elsewhere: Elsewhere, *texts: str) -> None:
    for text in texts:
        await elsewhere.say(text, id_=text.replace(" ", "-"))
        await elsewhere.until_heard(ok=text.replace(" ", "-"))


async def test_an_undeliverable_answer_is_tried_once_and_the_next_goes_on_at_once(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await said_and_taken(elsewhere, "never mind", "tea is ready")
        await elsewhere.until_heard(text="tea is ready")
        gone, delivered = await until_noted(g, "reply_delivered", 2)
    elsewhere.hang_up()
    async with serving(tmp_path / "home", elsewhere) as g:  # nor again after a restart
        await said_and_taken(elsewhere, "and coffee")
        await elsewhere.until_heard(text="and coffee")
    assert gone["failed"] == "The room is gone."
    assert "failed" not in delivered
    assert [text for text, _ in tried()] == ["never mind", "tea is ready", "and coffee"]
    assert [line for line in lines_of(g) if line["kind"] == "plugin_failed"] == []


async def test_an_answer_is_tried_again_when_the_channel_says_and_the_next_waits_for_it(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with serving(tmp_path / "home", elsewhere):
        await said_and_taken(elsewhere, "later 0.5 perhaps", "tea is ready")
        await elsewhere.until_heard(text="later 0.5 perhaps")
        await elsewhere.until_heard(text="tea is ready")
    (first, began), (again, tried_again), (then, _) = tried()
    assert (first, again, then) == ("later 0.5 perhaps", "later 0.5 perhaps", "tea is ready")
    assert tried_again - began >= 0.5


async def test_a_conversation_whose_answer_is_being_delivered_is_not_handed_over(
    tmp_path: Path, elsewhere: Elsewhere, switchboards: list[Switchboard], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, deliver = asyncio.Event(), ReplyDelivery._pass_to_channel

    async def slowly(self: ReplyDelivery, *given: Any) -> Any:
        outcome = await deliver(self, *given)
        await go_on.wait()
        return outcome

    monkeypatch.setattr(ReplyDelivery, "_pass_to_channel", slowly)
    monkeypatch.setattr(switchboard, "HAND_OVER_SECONDS", 0.3)
    monkeypatch.setattr(switchboard, "DELIVERY_SECONDS", 0.05)
    async with serving(tmp_path / "home", elsewhere) as g:
        await said_and_taken(elsewhere, "coffee")
        await elsewhere.until_heard(text="coffee")
        handed_over = await switchboards[0].hand_over("owner", "lines:kitchen", "")
        await switchboards[0].chat("owner", "lines:kitchen", create=False)
        go_on.set()
        await until_noted(g, "reply_delivered")
        await said_and_taken(elsewhere, "tea")
        await elsewhere.until_heard(text="tea")
    assert [text for text, _ in tried()] == ["coffee", "tea"]
    assert not handed_over


async def test_an_answer_that_waits_moves_with_its_conversation_and_is_delivered_where_that_is(
    tmp_path: Path, elsewhere: Elsewhere, switchboards: list[Switchboard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "DELIVERY_SECONDS", 0.05)
    async with serving(tmp_path / "home", elsewhere) as g:
        await said_and_taken(elsewhere, "later 600 coffee")
        await until(lambda: bool(tried()))
        assert await switchboards[0].hand_over("owner", "lines:kitchen", "")
        await switchboards[0].chat("owner", "lines:kitchen", create=False)  # and it comes back
        await elsewhere.until_heard(text="later 600 coffee")
        await until_noted(g, "reply_delivered")


async def test_an_answer_that_always_fails_is_abandoned_once_a_later_one_is_accepted(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await said_and_taken(elsewhere, "broken one", "broken two", "tea is ready")
        await elsewhere.until_heard(text="tea is ready")
        noted = await until_noted(g, "reply_delivered", 3)
    failed = [line["failed"] for line in noted if "failed" in line]
    assert (
        failed == ["The channel 'lines' did not accept it, but accepted a later one: RuntimeError: It cannot be said."] * 2
    )
    assert [text for text, _ in tried()].count("broken one") > reply_delivery.BLOCKING_FAILURES
    assert len([line for line in lines_of(g) if line["kind"] == "plugin_failed"]) == 2  # once for each


async def test_nothing_is_abandoned_while_the_channel_accepts_nothing(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere) as g:
        await said_and_taken(elsewhere, "broken one", "broken two", "broken three")
        await until(lambda: [text for text, _ in tried()].count("broken three") > reply_delivery.BLOCKING_FAILURES)
        sys.modules["exuvia_lines"].Lines.broken = False  # it works again
        noted = await until_noted(g, "reply_delivered", 3)
    assert not any("failed" in line for line in noted)
    assert sorted(line["text"] for line in await elsewhere.rest()) == ["broken one", "broken three", "broken two"]


async def test_an_answer_that_is_not_accepted_for_a_day_is_abandoned(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_delivery, "ABANDON_AFTER", 0.5)
    monkeypatch.setattr(reply_delivery, "MIN_SECONDS", 0.2)
    async with serving(tmp_path / "home", elsewhere) as g:
        await said_and_taken(elsewhere, "always later", "broken one")
        noted = await until_noted(g, "reply_delivered", 2)
    assert [line["failed"] for line in noted] == [
        "The channel 'lines' did not accept it for a day: Too much is said here.",
        "The channel 'lines' did not accept it for a day: RuntimeError: It cannot be said.",
    ]


async def test_a_delivery_that_cancels_itself_is_tried_again(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with serving(tmp_path / "home", elsewhere):
        await said_and_taken(elsewhere, "cancelled for now", "tea is ready")
        await elsewhere.until_heard(text="cancelled for now")
        await elsewhere.until_heard(text="tea is ready")
