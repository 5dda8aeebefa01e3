"""The websocket protocol as clients rely on it, against a running gateway."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.http.outbox import Outbox
from gateway.http.subscribers import Cursor, Outgoing, Subscription
from gateway.protocol.frames import GREETING_LIMIT, PROTOCOL
from sessions.catalog.receipt_batches import CollectedReceipts
from sessions.events.errors import StorageFailed
from sessions.store.catalog import portions
from tests.gateway.gateways import TOKEN, Client, gateway, replies_wait
from tests.waiting import deadline


def texts(client: Client, kind: str = "model_replied") -> list[str]:
    return [event["text"] for _, event in client.events() if event["kind"] == kind]


async def test_a_message_is_accepted_shown_streamed_and_answered_in_this_order(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        id_ = await client.send("hello there friend")
        await client.until_event("turn_ended")
        accepted = client.frames[1]
        assert accepted["type"] == "accepted"
        assert (accepted["id"], accepted["session"], accepted["duplicate"]) == (id_, "main", False)
        events = [event for _, event in client.events()]
        assert [event["seq"] for event in events] == list(range(accepted["seq"], accepted["seq"] + len(events)))
        assert events[0]["kind"] == "message_received"
        assert [event["kind"] for event in events][-2:] == ["model_replied", "turn_ended"]
        deltas = [frame for frame in client.frames if frame["type"] == "delta"]
        assert "".join(delta["text"] for delta in deltas) == texts(client)[0] == "hello there friend"
        assert deltas[0]["offset"] == 0
        assert {(delta["turn"], delta["reply"]) for delta in deltas} == {(1, 1)}
        (journal,) = g.journals().values()
        assert events == [{k: v for k, v in line.items() if k != "sum"} for line in journal[accepted["seq"] - 1 :]]


async def test_no_delta_precedes_the_event_of_the_previous_reply(tmp_path: Path) -> None:
    looking = {"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "."}}]}
    async with gateway(tmp_path, script=[looking] * 20 + [{"text": "Well."}]) as g:
        client = await g.connect()
        await client.chat("go")
    seen = 0
    for frame in client.frames:
        if frame["type"] == "event" and frame["event"]["kind"] == "model_replied":
            seen = frame["event"]["reply"]
        elif frame["type"] == "delta":
            assert frame["reply"] == seen + 1
    assert seen == 21


async def test_the_first_frame_may_contain_the_token(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect(None)
        await client.say("hello", protocol=1, token=TOKEN, client="test/1")
        welcome = await client.next()
        assert welcome["type"] == "welcome"
        assert welcome["protocol"] == 1
        assert await client.chat("hi") == "hi"
        assert client.events()[0][1]["client"] == "test/1"
        assert client.events()[0][1]["sender"] == "owner"


@pytest.mark.parametrize(
    "first",
    [
        '{"type":"hello","protocol":1,"token":"wrong"}',
        '{"type":"hello","protocol":1}',
        '{"type":"send","id":"1","session":"main","text":"hi"}',
        "nonsense",
        '{"type":"hello","protocol":1,"token":"' + "x" * 70_000 + '"}',
    ],
)
async def test_without_the_token_the_connection_is_closed_and_nothing_is_logged(tmp_path: Path, first: str) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect(None)
        await client.socket.send_str(first)
        assert await client.closed() in (4401, 1009)
        assert client.frames == []
        assert g.journals() == {}


async def test_the_first_frame_is_limited(tmp_path: Path) -> None:
    hello = json.dumps({"type": "hello", "protocol": PROTOCOL, "token": TOKEN}).ljust(GREETING_LIMIT)
    async with gateway(tmp_path) as g:
        client = await g.connect(None)
        await client.socket.send_str(hello)
        assert (await client.next())["type"] == "welcome"
        client = await g.connect(None)
        await client.socket.send_str(hello + " ")
        assert (await client.closed(at_once=True), client.frames) == (1009, [])


async def test_a_first_frame_of_another_protocol_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect(None)
        await client.say("hello", protocol=PROTOCOL + 1, token=TOKEN)
        assert (await client.closed(at_once=True), client.frames) == (1002, [])


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"Authorization": "Bearer wrong"}, "", 401),
        ({}, f"?token={TOKEN}", 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, "", 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "null"}, "", 403),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, "", 403),
    ],
)
async def test_wrong_credentials_are_refused_before_the_upgrade(
    tmp_path: Path, headers: dict[str, str], query: str, status: int
) -> None:
    async with gateway(tmp_path) as g:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await g.http.ws_connect(f"{g.url}/ws{query}", headers=headers)
        assert refused.value.status == status


async def test_the_gateways_own_page_may_connect(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect(Origin=g.url)
        assert await client.chat("hi") == "hi"


async def test_health_endpoints_need_no_token_and_accept_any_host(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        for path in ("healthz", "readyz"):
            async with g.http.get(f"{g.url}/{path}", headers={"Host": "probe.internal"}) as answer:
                assert answer.status == 200
        async with g.http.get(f"{g.url}/nowhere") as answer:
            assert answer.status == 404


# --- ids --------------------------------------------------------------------------------------------------------------


async def test_the_same_id_with_the_same_text_is_one_message(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client, other = await g.connect(), await g.connect()
        await client.send("hi", id_="x")
        first = await client.until_type("accepted")
        await client.until_event("turn_ended")
        await other.send("hi", id_="x")
        again = await other.until_type("accepted")
        assert again == {**first, "duplicate": True}
        await other.until_event("turn_ended")
        assert len(texts(other)) == 1
        await other.send("other", id_="x")
        assert (await other.until_answered("x")).get("code") == "conflict"


# Failure 17: the guards are the receipts.
async def test_the_same_id_is_known_after_new_and_after_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.send("hi", id_="x")
        first = await client.until_type("accepted")
        await client.until_event("turn_ended")
        await client.command("/new")
        await client.send("hi", id_="x")
        assert await client.until_type("accepted") == {**first, "duplicate": True}
    (tmp_path / "catalog.sqlite").unlink()
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.send("hi", id_="x")
        assert await client.until_type("accepted") == {**first, "duplicate": True}
        assert len(g.journals()) == 2


# --- subscriptions ----------------------------------------------------------------------------------------------------


async def test_a_repeated_message_is_refused_while_the_ids_of_the_journal_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.send("hi", id_="one")
        await client.until_event("turn_ended")
    before = g.journals()

    def fail(*_: object) -> CollectedReceipts:
        raise StorageFailed("It cannot be read.") from OSError(errno.EIO, os.strerror(errno.EIO))

    async with gateway(tmp_path) as g:
        client = await g.connect()
        with monkeypatch.context() as broken:
            broken.setattr("sessions.catalog.receipt_batches.collect_receipts", fail)
            await client.send("hi", id_="one")
            refused = await client.until_answered("one")
        assert (refused["type"], refused["code"]) == ("error", "storage_failed")
        await client.send("hi", id_="one")
        accepted = await client.until_answered("one")
        assert (accepted["type"], accepted["duplicate"]) == ("accepted", True)
    assert g.journals() == before


async def test_two_clients_see_the_same_events_in_the_same_order(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        one, two = await g.connect(), await g.connect()
        await one.chat("first")
        await two.say("subscribe", session="main", after=0)
        for number in range(5):
            await (one, two)[number % 2].send(f"message {number}")
        for client in (one, two):
            while len(texts(client)) < 6 or client.events()[-1][1]["kind"] != "turn_ended":
                await client.next()
        assert two.events()[-len(one.events()) :] == one.events()
        assert [event["seq"] for _, event in two.events()] == list(range(1, len(two.events()) + 1))


async def test_a_client_resumes_where_it_stopped_also_after_new(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        live = await g.connect()
        await live.say("ping")
        await live.chat("one")
        session_id, event = live.events()[0]
        await live.command("/new")
        await live.chat("two")
        await live.command("/new")
        await live.chat("three")
        resumed = await g.connect()
        await resumed.say("subscribe", session="main", session_id=session_id, after=event["seq"] - 1)
        while "three" not in texts(resumed) or resumed.events()[-1][1]["kind"] != "turn_ended":
            await resumed.next()
        journals = g.journals()
        by_session: dict[str, list[int]] = {}
        for session, seen in resumed.events():
            by_session.setdefault(session, []).append(seen["seq"])
        assert list(by_session) == list(journals)
        for session, seqs in by_session.items():
            assert seqs == sorted(set(seqs))
            assert seqs[0] == (event["seq"] if session == session_id else 1)
        shared = [seen for seen in resumed.events() if seen in live.events()]
        assert sorted(map(repr, shared)) == sorted(map(repr, live.events()))


async def test_a_subscription_beyond_the_end_is_refused_with_the_head(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.say("subscribe", id="s", session="main", after=0)
        assert (await client.until_type("error"))["code"] == "unknown_session"
        await client.chat("hi")
        await client.say("subscribe", id="s", session="main", after=999)
        error = await client.until_type("error")
        (journal,) = g.journals().values()
        assert (error["code"], error["id"], error["head"]) == ("bad_request", "s", journal[-1]["seq"])


async def test_a_subscription_whose_log_cannot_be_read_ends_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        ((session, last), *_) = reversed(client.events())
        take = Cursor.take

        async def fail_once(self: Cursor) -> list[Outgoing]:
            monkeypatch.setattr(Cursor, "take", take)
            raise StorageFailed("The log cannot be read: Too many open files.")

        monkeypatch.setattr(Cursor, "take", fail_once)
        id_ = await client.send("and now?")
        error = await client.until_type("error")
        assert (error["code"], error["session"], "id" in error) == ("storage_failed", "main", False)
        await client.say("subscribe", session="main", session_id=session, after=last["seq"])
        await client.until_event("turn_ended")
        seqs = [event["seq"] for _, event in client.events()]
        assert seqs == [*range(2, len(seqs) + 2)]
        assert id_ in [event.get("id") for _, event in client.events()]


@pytest.mark.parametrize("frame", ["subscribe", "unsubscribe"])
async def test_a_replaced_or_ended_subscription_sends_nothing(
    frame: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, changed, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    send, unfollow = Outbox._send, Outbox.unfollow

    async def slowly(self: Outbox, data: bytes) -> None:
        if b'"seq":2,' in data and not begun.is_set():
            begun.set()
            await go_on.wait()
        await send(self, data)

    def told(self: Outbox, key: str) -> None:
        unfollow(self, key)
        if begun.is_set():
            changed.set()

    async with gateway(tmp_path) as g:
        await (await g.connect()).chat("hi")
        reader = await g.connect()
        monkeypatch.setattr(Outbox, "_send", slowly)
        monkeypatch.setattr(Outbox, "unfollow", told)
        await reader.say("subscribe", session="main", after=0)
        async with deadline():
            await begun.wait()
            await reader.say(frame, session="main", **({"after": 0} if frame == "subscribe" else {}))
            await changed.wait()
        go_on.set()
        if frame == "subscribe":
            await reader.until_event("turn_ended")
        await reader.say("ping", id="p")
        await reader.until_type("pong")
        seqs = [event["seq"] for _, event in reader.events()]
        assert seqs == ([1, 2, *range(1, seqs[-1] + 1)] if frame == "subscribe" else [1, 2])


async def test_events_of_one_session_do_not_wake_subscriptions_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[str] = []
    take, is_flooded = Subscription.take, vars(Subscription)["is_flooded"].fget

    async def counted_take(self: Subscription) -> list[Outgoing]:
        examined.append(self.chat.key)
        return await take(self)

    def counted_is_flooded(self: Subscription) -> bool:
        examined.append(self.chat.key)
        return bool(is_flooded(self))

    async with gateway(tmp_path) as g:
        client = await g.connect()
        for key in ("one", "two", "three"):
            await client.chat("hi", session=key)
        await client.say("ping", id="p")
        await client.until_type("pong", id="p")
        monkeypatch.setattr(Subscription, "take", counted_take)
        monkeypatch.setattr(Subscription, "is_flooded", property(counted_is_flooded))
        assert await client.chat("a b c d e f", session="two") == "a b c d e f"
        assert set(examined) == {"two"}


async def test_an_unsubscribed_client_receives_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client, other = await g.connect(), await g.connect()
        await client.chat("hi")
        await client.say("unsubscribe", session="main")
        await client.say("ping", id="p")
        await client.until_type("pong", id="p")
        await other.chat("more")
        seen = len(client.frames)
        await client.say("ping", id="q")
        await client.until_type("pong", id="q")
        assert len(client.frames) == seen + 1


async def test_history_is_paged_with_the_newest_event_last(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        for number in range(4):
            await client.chat(f"message {number}")
        (journal,) = g.journals().values()
        expected = [{k: v for k, v in line.items() if k != "sum"} for line in journal]
        pages: list[dict[str, Any]] = []
        before = None
        while True:
            await client.say("history", id="h", session="main", limit=5, **({"before": before} if before else {}))
            page = await client.until_type("history", id="h")
            pages = page["events"] + pages
            before = page["events"][0]["seq"]
            if not page["more"]:
                break
        assert pages == expected


async def test_the_list_of_sessions_has_their_heads(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("a", session="one")
        await client.chat("b", session="two")
        await client.say("sessions", id="l")
        listed = (await client.until_type("sessions", id="l"))["sessions"]
        assert sorted(row["session"] for row in listed) == ["one", "two"]
        heads = {session: lines[-1]["seq"] for session, lines in g.journals().items()}
        assert {row["session_id"]: row["head"] for row in listed} == heads


async def test_a_client_that_does_not_read_is_closed_and_resumes(tmp_path: Path) -> None:
    script = [{"text": "x" * 200_000}]
    async with gateway(tmp_path, script=script) as g:
        stalled, other = await g.connect(), await g.connect()
        await stalled.chat("hi")
        last = stalled.events()[-1][1]["seq"]
        stalled.socket._reader._protocol.pause_reading()
        for number in range(60):
            await other.chat(f"go on {number}")
        stalled.socket._reader._protocol.resume_reading()
        assert await stalled.closed() in (1013, 1006, None)
        seen = [event["seq"] for _, event in stalled.events()]
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        again = await g.connect()
        await again.say("subscribe", session="main", after=last)
        while len(texts(again)) < 60:
            await again.next()
        assert again.events()[0][1]["seq"] == last + 1


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_cancel_ends_the_turn_and_leaves_the_waiting_messages(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [{"text": "a long story"}, {"text": "next"}]
    with replies_wait() as go_on:
        async with gateway(tmp_path, script=script) as g:
            client = await g.connect()
            await client.say("cancel", session="main")
            assert (await client.until_type("error"))["code"] == "unknown_session"
            await client.send("tell me")
            await client.until_type("delta")
            await client.send("and then")
            await client.say("cancel", session="main")
            assert (await client.until_event("turn_ended"))["outcome"] == "cancelled"
            go_on.set()
            assert (await client.until_event("turn_ended"))["outcome"] == "replied"
            assert texts(client)[-1] == "next"


async def test_the_queue_is_limited(tmp_path: Path) -> None:
    script = [{"text": "slow answer"}]
    with replies_wait() as go_on:
        async with gateway(tmp_path, script=script, settings={"sessions.queue_limit": 2}) as g:
            client = await g.connect()
            await client.send("one")
            await client.until_type("delta")
            for text in ("two", "three", "four"):
                await client.send(text)
            error = await client.until_type("error")
            assert (error["code"], error["retry_after"]) == ("busy", 1)
            assert (await client.command("/stop")).lower().startswith("stop")
            go_on.set()


async def test_messages_sent_right_after_new_go_to_the_new_session(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        for text in ("one", "/new", "two"):
            await client.send(text)
        while len(texts(client)) < 2 or client.events()[-1][1]["kind"] not in ("turn_ended", "session_closed"):
            await client.next()
        old, new = g.journals().values()
        assert [e["text"] for e in old if e["kind"] == "message_received"] == ["one", "/new"]
        assert [e["text"] for e in new if e["kind"] == "message_received"] == ["two"]
        assert new[0]["succeeds"]["session"] == old[0]["session"]


async def test_commands_are_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hi")
        assert "/status" in await client.command("/help")
        assert "scripted:echo" in await client.command("/status")
        assert "owner" in await client.command("/whoami")
        assert [line.partition(" UTC ")[2] for line in (await client.command("/history 5")).splitlines()] == [
            "**person**: hi",
            "**assistant**: hi",
        ]
        assert [line.partition(" UTC ")[2][:17] for line in (await client.command("/history 3 all")).splitlines()] == [
            "**gateway**: - Pe",
            "**person**: /hist",
            "**gateway**: - 20",
        ]
        assert "no command" in await client.command("/nonsense")
        assert "scripted:echo" in await client.command("/model")
        assert "provider" in await client.command("/model nonsense")
        assert await client.chat("/usr/bin is a path") == "/usr/bin is a path"


# --- what nobody should send ------------------------------------------------------------------------------------------


async def test_no_frame_crashes_the_process_or_reaches_the_log(tmp_path: Path) -> None:
    chance = random.Random(7)
    good = json.dumps({"type": "send", "id": "i", "session": "main", "text": "t"})
    async with gateway(tmp_path) as g:
        client = await g.connect()
        sent = 0
        for _ in range(10_000):
            characters = list(good)
            for _ in range(chance.randrange(1, 4)):
                place = chance.randrange(len(characters))
                characters[place] = chance.choice(['"', "{", "}", "[", "\\u0000", "\\ud800", "9", "NaN", ":", "é"])
            text = "".join(characters)
            try:
                valid = json.loads(text)["type"] == "send"
            except (ValueError, KeyError, TypeError):
                valid = False
            if not valid:
                await client.socket.send_str(text)
                sent += 1
        await client.say("ping", id="end")
        await client.until_type("pong", id="end")
        errors = [frame for frame in client.frames if frame["type"] == "error"]
        assert len(errors) == sent > 5000
        assert {error["code"] for error in errors} <= {"bad_frame", "unknown_session"}
        assert g.journals() == {}


async def test_a_frame_above_the_limit_is_refused_and_the_connection_continues(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        id_ = await client.send("x" * 2 * 1024 * 1024)
        refused = await client.until_type("error")
        assert (refused["code"], refused.get("id")) == ("too_large", id_)
        await client.say("send", session="main", text='"id": "not this", \\"id\\": "nor this"' * 40_000, id="behind")
        refused = await client.until_type("error")
        assert (refused["code"], refused.get("id")) == ("too_large", "behind")
        await client.socket.send_bytes(b"\x00\x01")
        assert (await client.until_type("error"))["code"] == "bad_frame"
        assert await client.chat("hi") == "hi"


async def test_a_frame_of_a_million_bytes_is_accepted(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"text": "long"}]) as g:
        client = await g.connect()
        await client.send("é" * 500_000)
        assert (await client.until_type("accepted"))["duplicate"] is False
        await client.until_event("turn_ended")


async def test_many_concurrent_sessions_are_answered_once_and_in_order(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:

        async def talk(key: str) -> list[str]:
            client = await g.connect()
            for number in range(4):
                await client.send(f"{key} {number}", session=key)
            answers: list[str] = []
            while len(answers) < 4:
                answers.append((await client.until_event("model_replied"))["text"])
            return answers

        keys = [f"s{number}" for number in range(50)]
        answers = await asyncio.gather(*map(talk, keys))
        assert answers == [[f"{key} {number}" for number in range(4)] for key in keys]


async def test_a_long_list_of_sessions_is_made_in_portions_between_which_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        for number in range(5):
            await client.chat("one", session=f"key-{number}")
        await client.say("sessions", id="all")
        at_once = (await client.until_type("sessions"))["sessions"]
        monkeypatch.setattr("sessions.store.catalog.PORTION", 2)
        await client.say("sessions", id="portions")
        assert (await client.until_type("sessions", id="portions"))["sessions"] == at_once
        assert [each["session"] for each in at_once] == [f"key-{number}" for number in range(5)]

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert [list(portion) async for portion in portions(range(5))] == [[0, 1], [2, 3], [4]]
    assert turns == 2
    task.cancel()
