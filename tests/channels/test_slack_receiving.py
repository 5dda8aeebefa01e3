"""What the channel for Slack receives: each message once, acknowledged once it is durable, in order, without gaps."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugins.api.channel import Choice, InboundFile, InboundMessage, MessageRejected
from plugins.channels.slack import slack_catch_up, slack_channel, socket_mode
from plugins.channels.slack.slack_catch_up import Progress
from plugins.support.errors import SettingsRefused
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile
from tests.channels.slack_stage import Inbox, Stage, staged
from tests.servers.slack_server import BOT_USER, SlackServer
from tests.waiting import VirtualTime, deadline, until

MENTION = f"<@{BOT_USER}>"


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(ack_seconds=30.0, retry_delays=(0.0, 0.2)).serving() as server:
        server.conversation("D1")
        server.conversation("C1", "channel")
        yield server


@pytest.fixture
async def stage(slack: SlackServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(slack, tmp_path) as running:
        yield running


def calls(slack: SlackServer, method: str) -> list[dict[str, Any]]:
    return [arguments for name, arguments in slack.calls if name == method]


# --- one message ------------------------------------------------------------------------------------------------------


async def test_a_direct_message_has_its_sender_name_and_text(stage: Stage) -> None:
    stage.slack.people["U1"] = "Ana \u202e"
    ts = await stage.slack.say(
        "U1", "D1", "Is &lt;tea&gt; &amp; <https://a.example/?q=1|milk> with <@U2|ben> in <#C9|lab> <!here>?"
    )
    assert await stage.inbox.next() == InboundMessage(
        id=f"D1/{ts}",
        sender="U1",
        chat="D1",
        text="Is <tea> & [milk](https://a.example/?q=1) with @ben in #lab @here?",
        name="Ana \u202e",
        at=float(ts),
    )


async def test_a_mention_in_a_channel_arrives_once_and_begins_a_thread(stage: Stage) -> None:
    ts = await stage.slack.say("U1", "C1", f"{MENTION} Is there tea?")
    message = await stage.inbox.next()
    assert (message.text, message.group, message.mentioned, message.thread) == ("Is there tea?", True, True, ts)
    await until(lambda: len(stage.slack.acknowledged) == 2)
    assert stage.inbox.ids == [f"C1/{ts}"]


async def test_what_addresses_others_in_a_channel_is_not_for_the_assistant(stage: Stage) -> None:
    file = stage.slack.attach("U1", "a.txt", b"tea", "text/plain")
    await stage.slack.say("U1", "C1", "<@U2> Is there tea?", files=[file], subtype="file_share")
    message = await stage.inbox.next()
    assert (message.mentioned, message.attachments, message.name) == (False, (), "")
    assert not calls(stage.slack, "users.info")


async def test_replies_in_a_thread_and_without_threads(slack: SlackServer, tmp_path: Path) -> None:
    async with staged(slack, tmp_path, threads=False) as stage:
        first = await slack.say("U1", "C1", f"{MENTION} one")
        await slack.say("U1", "C1", f"{MENTION} two", thread=first)
        assert [(await stage.inbox.next()).thread for _ in range(2)] == ["", first]


async def test_an_edit_and_a_deletion_name_the_message(stage: Stage) -> None:
    ts = await stage.slack.say("U1", "C1", f"{MENTION} one")
    await stage.inbox.next()
    stage.slack.change("C1", ts, f"{MENTION} two")
    edit = await stage.inbox.next()
    assert (edit.edits, edit.text, edit.thread, edit.deletes) == (f"C1/{ts}", "two", ts, "")
    assert edit.id.startswith(f"C1/{ts}/")
    stage.slack.delete("C1", ts)
    deletion = await stage.inbox.next()
    assert (deletion.deletes, deletion.text, deletion.thread, deletion.sender) == (f"C1/{ts}", "", ts, "U1")


async def test_bots_its_own_posts_and_unfurled_links_are_left_out(stage: Stage) -> None:
    slack = stage.slack
    ts = await slack.say("U1", "D1", "one")
    await slack.say("U9", "D1", "from a bot", bot_id="B9", subtype="bot_message")
    await slack.say("U1", "D1", "joined", subtype="channel_join")
    await stage.post()
    message = slack.conversation("D1").find(ts) or {}
    place = {"channel": "D1", "channel_type": "im", "type": "message", "subtype": "message_changed", "ts": slack.ts()}
    slack.emit(place | {"message": message | {"attachments": [{"title": "x"}]}, "previous_message": message})
    await slack.say("U1", "D1", "two")
    assert await stage.texts(2) == ["one", "two"]
    await until(lambda: len(slack.acknowledged) == 6)
    assert len(stage.inbox.ids) == 2


async def test_files_are_read_with_the_token(stage: Stage) -> None:
    file = stage.slack.attach("U1", "../a\u202e.txt", b"tea", "text/plain")
    await stage.slack.say("U1", "D1", "Look", files=[file], subtype="file_share")
    assert (await stage.inbox.next()).attachments == (
        InboundFile(content=b"tea", name="../a\u202e.txt", media="text/plain"),
    )


async def test_files_that_cannot_be_read_are_named(stage: Stage) -> None:
    slack = stage.slack
    huge = slack.attach("U1", "huge.bin", b"x", "application/octet-stream", size=51 * 1024 * 1024)
    elsewhere = slack.attach("U1", "map", b"x", "text/plain", url_private_download="https://files.example.com/map")
    gone = slack.attach("U1", "old", b"x", "text/plain", mode="hidden_by_limit")
    await slack.say("U1", "D1", "Look", files=[huge, elsewhere, gone])
    slack.scopes.discard("files:read")
    secret = slack.attach("U1", "secret", b"x", "text/plain")
    await slack.say("U1", "D1", "And", files=[secret])
    first, second = await stage.texts(2)
    assert first.splitlines() == [
        "Look",
        "[file: huge.bin could not be read: it has more than 50 MB.]",
        "[file: map could not be read: It is not on Slack's servers.]",
        "[file: old could not be read: Slack does not have it any more.]",
    ]
    assert "lacks the scope files:read" in second


async def test_a_press_comes_back_with_its_thread(stage: Stage) -> None:
    ts = await stage.slack.say("U1", "C1", f"{MENTION} tea")
    await stage.inbox.next()
    choice = Choice(id="/approve k3f9 once", label="Approve")
    await stage.post(chat="C1", thread=ts, choices=(choice,))
    await stage.slack.press("U2", "C1", "Approve")
    pressed = await stage.inbox.next()
    assert (pressed.sender, pressed.chat, pressed.thread, pressed.choice) == ("U2", "C1", ts, "/approve k3f9 once")
    assert pressed.group
    assert pressed.mentioned


async def test_a_reaction_to_a_post_names_it(stage: Stage) -> None:
    ts = await stage.slack.say("U1", "C1", f"{MENTION} tea")
    await stage.inbox.next()
    receipt = await stage.post(chat="C1", thread=ts)
    post = receipt.partition("/")[2]
    stage.slack.react("U2", "C1", ts, "+1")
    stage.slack.react("U2", "C1", post, "tada")
    stage.slack.react("U2", "C1", post, "+1::skin-tone-3")
    reaction = await stage.inbox.next()
    assert (reaction.reaction, reaction.reacts_to, reaction.thread, reaction.sender) == ("👍", receipt, ts, "U2")
    assert len(stage.inbox.ids) == 2


async def test_the_slash_command_is_a_command(stage: Stage) -> None:
    payload = {"command": "/exuvia", "text": "status", "user_id": "U1", "channel_id": "D1", "channel_name": "directmessage"}
    stage.slack.command(payload)
    message = await stage.inbox.next()
    assert (message.text, message.sender, message.chat, message.group) == ("/status", "U1", "D1", False)


# --- durability -------------------------------------------------------------------------------------------------------


async def test_an_envelope_is_acknowledged_after_the_message_is_durable(stage: Stage) -> None:
    stage.inbox.open.clear()
    await stage.slack.say("U1", "D1", "one")
    await stage.slack.say("U2", "D2", "two")
    await until(lambda: len(calls(stage.slack, "users.info")) == 2)
    assert stage.slack.acknowledged == []
    stage.inbox.open.set()
    await until(lambda: len(stage.slack.acknowledged) == 2)
    assert sorted(await stage.texts(2)) == ["one", "two"]


async def test_an_envelope_that_comes_again_is_one_message(slack: SlackServer, tmp_path: Path) -> None:
    slack.ack_seconds = 0.1
    async with staged(slack, tmp_path) as stage:
        stage.inbox.open.clear()
        await slack.say("U1", "D1", "one")
        await until(lambda: slack.attempts >= 2)
        stage.inbox.open.set()
        assert await stage.texts(1) == ["one"]
        await slack.say("U1", "D1", "two")
        assert await stage.texts(1) == ["two"]
        assert len(stage.inbox.ids) == 2


async def test_a_busy_gateway_gets_the_message_again_before_it_is_acknowledged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_channel, "LATER_PAUSES", (0.01,))
    stage.inbox.refusals = [MessageRejected("Busy.", later=True)] * 3
    await stage.slack.say("U1", "D1", "one")
    await stage.slack.say("U1", "D1", "two")
    assert await stage.texts(2) == ["one", "two"]
    await until(lambda: len(stage.slack.acknowledged) == 2)
    assert stage.slack.posts("D1") == []


async def test_a_rejection_is_told_only_where_the_gateway_says_so(stage: Stage) -> None:
    stage.inbox.refusals = [MessageRejected("Who are you?"), MessageRejected("Too <long>.", tell=True)]
    for text in ("one", "two", "three"):
        await stage.slack.say("U1", "D1", text)
    assert await stage.texts(1) == ["three"]
    async with deadline():
        assert (await stage.slack.hear()) == ("D1", "Too <long>.")
    assert len(stage.slack.posts("D1")) == 1


async def test_messages_of_a_conversation_stay_in_order(stage: Stage) -> None:
    numbers = [str(number) for number in range(60)]
    for number in numbers:
        await stage.slack.say(f"U{number}", "D1", number)
    assert await stage.texts(60) == numbers


async def test_hostile_envelopes_and_events_end_nothing(stage: Stage) -> None:
    slack = stage.slack
    for event in (
        {"type": "message"},
        {"type": "message", "channel": "D1", "ts": "never", "user": "U1", "text": 7},
        {"type": "message", "subtype": "message_changed", "channel": "D1", "message": "?"},
        {"type": "reaction_added", "item": []},
        {"type": ["message"]},
    ):
        slack.emit(event)
    (connection,) = slack.connections
    for frame in ("{", "[]", "null", json.dumps({"envelope_id": "e", "type": "events_api", "payload": "?"})):
        await connection.socket.send_str(frame)
    await slack.say("U1", "D2", "still there?")
    assert await stage.texts(1) == ["still there?"]


# --- connections ------------------------------------------------------------------------------------------------------


async def test_a_connection_is_replaced_before_it_ends(stage: Stage) -> None:
    slack = stage.slack
    listed = len(calls(slack, "users.conversations"))
    async with deadline():
        await until(lambda: len(calls(slack, "users.conversations")) == 4)
        await slack.disconnect("warning", grace=0.5)
        await until(lambda: slack.opened >= 2)
    assert len(slack.connections) == 2
    assert listed <= 4
    await slack.say("U1", "D1", "one")
    await until(lambda: len(slack.connections) == 1)
    await slack.say("U1", "D1", "two")
    assert await stage.texts(2) == ["one", "two"]
    assert len(calls(slack, "users.conversations")) == 4  # nothing was missed, so nothing is caught up
    assert stage.inbox.reports.empty()


async def test_what_was_missed_is_caught_up_in_order_and_once(stage: Stage) -> None:
    slack = stage.slack
    root = await slack.say("U1", "C1", f"{MENTION} one")
    changed = await slack.say("U1", "D1", "two")
    assert sorted(await stage.texts(2)) == ["one", "two"]
    reconnecting = asyncio.Event()
    slack.fail("apps.connections.open", hold=reconnecting)
    await slack.sever()
    slack.write("U1", "D1", "three", silent=True)
    slack.write("U1", "C1", f"{MENTION} four", thread=root, silent=True)
    slack.write("U2", "C1", f"{MENTION} five", silent=True)
    slack.change("D1", changed, "two!", silent=True)
    reconnecting.set()
    got = [await stage.inbox.next() for _ in range(4)]
    assert [message.text for message in got if message.chat == "D1"] == ["two!", "three"]
    assert [message.text for message in got if message.chat == "C1"] == ["four", "five"]
    assert next(message.edits for message in got if message.text == "two!") == f"D1/{changed}"
    await slack.say("U1", "D1", "six")
    assert await stage.texts(1) == ["six"]
    assert len(stage.inbox.ids) == len(set(stage.inbox.ids)) == 7


async def test_what_was_missed_while_it_was_closed_is_caught_up(slack: SlackServer, tmp_path: Path) -> None:
    slack.conversation("D1").messages.append(
        {"type": "message", "user": "U1", "ts": f"{time.time() - 90:.6f}", "text": "old"}
    )
    slack.write("U1", "D1", "one", silent=True)  # while it starts for the first time
    inbox = Inbox()
    async with staged(slack, tmp_path, inbox) as stage:
        assert await stage.texts(1) == ["one"]
    for number in range(450):  # three pages
        slack.write("U1", "D1", f"missed {number}", silent=True)
    slack.write("U1", "D2", "missed in a new conversation", silent=True)
    slack.fail("conversations.history", status=429, error="ratelimited", retry_after=1)
    slack.fail("users.conversations", error="internal_error")
    async with staged(slack, tmp_path, inbox) as stage:
        texts = await stage.texts(452)
    assert [text for text in texts if text.startswith("missed ") and "new" not in text] == [
        f"missed {number}" for number in range(450)
    ]
    assert "missed in a new conversation" in texts
    assert texts.count("one") == 1  # again, with the same id: a duplicate for the gateway
    assert "old" not in texts


async def test_a_crash_while_catching_up_hides_nothing(
    slack: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox()
    async with staged(slack, tmp_path, inbox) as stage:
        await slack.say("U1", "D1", "one")
        assert await stage.texts(1) == ["one"]
    slack.write("U1", "D1", "missed", silent=True)
    held = asyncio.Event()
    slack.fail("conversations.history", times=20, hold=held)
    with monkeypatch.context() as impatient:
        impatient.setattr(slack_channel, "CATCH_UP_SECONDS", 0.5)
        async with staged(slack, tmp_path, inbox) as stage:
            await slack.say("U1", "D1", "live")
            assert await stage.texts(1) == ["live"]
    held.set()
    slack.faults.clear()
    async with staged(slack, tmp_path, inbox) as stage, deadline():
        while "missed" not in await stage.texts(1):
            pass


async def test_what_was_edited_before_it_was_received_is_one_message(slack: SlackServer, tmp_path: Path) -> None:
    slack.ack_seconds = 0.2
    async with staged(slack, tmp_path) as stage:
        await until(lambda: len(calls(slack, "users.conversations")) == 4)
        reconnecting = asyncio.Event()
        slack.fail("apps.connections.open", hold=reconnecting)
        await slack.sever()
        ts = slack.write("U1", "D1", "one")  # Slack sends it again after the catch-up
        slack.change("D1", ts, "one!", silent=True)
        reconnecting.set()
        message = await stage.inbox.next()
        assert (message.text, message.edits) == ("one!", f"D1/{ts}")
        await until(lambda: slack.acknowledged)
        await slack.say("U1", "D1", "two")
        assert await stage.texts(1) == ["two"]
        assert len(stage.inbox.ids) == 2


async def test_an_odd_history_ends_nothing(slack: SlackServer, tmp_path: Path) -> None:
    slack.conversation("D1").messages.append({"type": "message", "ts": slack.ts(), "edited": "yes", "user": "U1"})
    slack.write("U1", "D2", "missed", silent=True)
    async with staged(slack, tmp_path) as stage:
        assert await stage.texts(1) == ["missed"]
        await slack.say("U1", "D1", "live")
        assert await stage.texts(1) == ["live"]


async def test_a_full_disk_does_not_end_it(slack: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slack_catch_up, "SAVE_SECONDS", 0.0)
    async with staged(slack, tmp_path) as stage:
        folder = tmp_path / "plugin"
        (folder / "slack.json").unlink()
        (folder / "slack.json").mkdir()
        await slack.say("U1", "D1", "one")
        assert await stage.texts(1) == ["one"]
        await until(lambda: not stage.channel._progress.changed)
        (folder / "slack.json").rmdir()
        await slack.say("U1", "D1", "two")
        assert await stage.texts(1) == ["two"]
        await until((folder / "slack.json").is_file)


async def test_positions_stay_while_a_gap_is_open(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "slack.json")
    progress = Progress(file)
    await progress.load(datetime.fromtimestamp(1_000.0, UTC))
    first = progress.open_gap()
    progress.handled("C1", "900.0")
    assert progress.position("C1")[0] == 940.0
    second = progress.open_gap()
    progress.caught_up("C1", first)  # by what was read before the second gap
    assert (progress.position("C1")[0], progress.gap("C1")) == (940.0, second)
    progress.handled("C1", "1100.0")
    progress.caught_up("C1", second)
    progress.handled("C2", "1200.0")
    assert (progress.position("C1")[0], progress.position("C2")[0]) == (1100.0, 940.0)
    progress.close_gap(second)
    assert progress.position("C2")[0] == 1200.0
    await progress.save()
    later = Progress(file)
    await later.load(datetime.now(UTC))
    assert (later.position("C1"), later.position("C3")[0]) == ((1100.0, 940.0), 940.0)


async def test_a_message_waits_for_those_that_were_missed_before_it(slack: SlackServer, tmp_path: Path) -> None:
    held = asyncio.Event()
    slack.fail("users.conversations", times=20, hold=held)
    async with staged(slack, tmp_path) as stage:
        for number in range(3):
            slack.write("U1", "D1", f"missed {number}", silent=True)
        await slack.say("U1", "D1", "live")
        assert await stage.texts(1) == ["missed 0"]
        assert await stage.texts(3) == ["missed 1", "missed 2", "live"]
        held.set()


async def test_what_was_said_before_the_bot_joined_is_none_of_its_business(slack: SlackServer, tmp_path: Path) -> None:
    async with staged(slack, tmp_path):
        pass
    slack.write("U1", "C2", f"{MENTION} before", silent=True)
    slack.conversation("C2").kind = "channel"
    slack.write(BOT_USER, "C2", "has joined", subtype="channel_join", silent=True)
    slack.write("U1", "C2", f"{MENTION} after", silent=True)
    async with staged(slack, tmp_path) as stage:
        assert await stage.texts(1) == ["after"]


async def test_a_connection_without_pongs_is_replaced(
    slack: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_mode, "HEARTBEAT", 0.2)
    slack.pongs = False
    async with staged(slack, tmp_path):
        slack.pongs = True
        await until(lambda: slack.opened >= 2)


async def test_socket_mode_turned_off_is_reported_until_it_is_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_mode, "PAUSES", (0.01,))
    stage.slack.socket_mode = False
    await stage.slack.disconnect("link_disabled")
    async with deadline():
        assert "Socket Mode is turned off" in await stage.inbox.reports.get()
        stage.slack.socket_mode = True
        while await stage.inbox.reports.get():
            pass
    await stage.slack.say("U1", "D1", "back")
    assert await stage.texts(1) == ["back"]


async def test_a_revoked_token_is_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_mode, "PAUSES", (0.01,))
    stage.slack.fail("apps.connections.open", times=5, error="token_revoked")
    await stage.slack.sever()
    async with deadline():
        assert "The token was revoked" in await stage.inbox.reports.get()
        while await stage.inbox.reports.get():
            pass


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda slack: setattr(slack, "bot_token", "xoxb-another"), "Slack does not accept the token"),
        (lambda slack: setattr(slack, "app_token", "xapp-another"), "Slack does not accept the token"),
        (lambda slack: slack.fail("auth.test", error="account_inactive"), "Install it again"),
    ],
)
async def test_it_does_not_open_with_wrong_credentials(
    slack: SlackServer, tmp_path: Path, change: Callable[[SlackServer], None], sentence: str
) -> None:
    change(slack)
    with pytest.raises(SettingsRefused, match=sentence):
        async with staged(slack, tmp_path):
            pass


@pytest.mark.parametrize(("key", "place"), [("token", "OAuth"), ("app_token", "App-Level Tokens")])
async def test_tokens_of_the_wrong_kind_are_not_sent_to_slack(
    slack: SlackServer, tmp_path: Path, key: str, place: str
) -> None:
    wrong: dict[str, Any] = {key: Secret("xoxp-mine")}
    with pytest.raises(SettingsRefused, match=place):
        async with staged(slack, tmp_path, **wrong):
            pass
    assert slack.calls == []


async def test_the_check_says_as_whom_it_is_logged_in(stage: Stage) -> None:
    assert await stage.channel.check() == "Logged in as @exuvia in the Slack workspace 'Tests'; Socket Mode can be used."
    assert stage.slack.opened == 1


# --- costs ------------------------------------------------------------------------------------------------------------


async def test_an_idle_hour_costs_a_ping_in_30_seconds(stage: Stage) -> None:
    slack = stage.slack
    await stage.slack.say("U1", "D1", "one")
    assert await stage.texts(1) == ["one"]
    await until(lambda: not stage.channel._progress.gap("another"))  # all is caught up
    before = len(slack.calls)
    with VirtualTime() as passing:
        await asyncio.sleep(3600)
    assert len(slack.calls) == before
    assert len(slack.connections) == slack.opened == 1
    # A ping each 30 seconds; the positions once; the client's and the server's idle connections for some minutes.
    assert passing.pauses <= 3600 / socket_mode.HEARTBEAT + 30
