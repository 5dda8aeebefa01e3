"""What the channel for Slack posts: each reply once, in its thread, or an error that says why not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from plugins.api.channel import ChannelActivity, Choice, DeliveryUnknown, TryLater, Undeliverable
from plugins.api.tool import OutputFile
from plugins.channels.slack import slack_delivery
from plugins.support.errors import PluginError
from tests.channels.slack_stage import Stage, staged
from tests.servers.slack_blocks import text_of
from tests.servers.slack_server import SlackServer
from tests.waiting import deadline

FILE = OutputFile(content=b"tea", media="text/plain", name="a.txt")
PAGE = Path(__file__).parents[2] / "docs" / "channels" / "slack.md"


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(ack_seconds=30.0).serving() as server:
        server.conversation("D1")
        server.conversation("C1", "channel")
        yield server


@pytest.fixture
async def stage(slack: SlackServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(slack, tmp_path) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Slack may still do, it does within half a second."""
    monkeypatch.setattr(slack_delivery, "SETTLE_SECONDS", 0.5)
    monkeypatch.setattr(slack_delivery, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(slack_delivery, "SHARE_PAUSES", (0.01,) * 3)


def texts(slack: SlackServer, chat: str = "D1") -> list[str]:
    return [text_of(post) for post in slack.posts(chat)]


async def test_a_post_has_a_receipt_blocks_a_text_and_metadata(stage: Stage) -> None:
    root = await stage.slack.say("U1", "C1", "tea?")
    receipt = await stage.post("There is **tea** & <!here>.", "C1", thread=root)
    (post,) = stage.slack.posts("C1")
    assert receipt == f"C1/{post['ts']}"
    assert post["metadata"] == {"event_type": "exuvia_reply", "event_payload": {"id": "s/1"}}
    assert post["text"] == "There is tea &amp; &lt;!here&gt;."
    assert post["thread_ts"] == root
    (sent,) = [arguments for method, arguments in stage.slack.calls if method == "chat.postMessage"]
    assert (sent["unfurl_links"], sent["unfurl_media"]) == ("false", "false")


async def test_choices_are_buttons_of_the_post(stage: Stage) -> None:
    await stage.post(choices=(Choice(id="/approve 1", label="Approve"), Choice(id="/deny 1", label="")))
    (post,) = stage.slack.posts("D1")
    assert [button["text"]["text"] for button in post["blocks"][-1]["elements"]] == ["Approve", "/deny 1"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", [{"cut": True}, {"status": 503}, {"error": "fatal_error"}, {"error": "internal_error"}])
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_an_attempt_of_unknown_outcome_is_found_or_repeated(
    stage: Stage, fault: dict[str, Any], done: bool, in_thread: bool
) -> None:
    more = {"thread": await stage.slack.say("U1", "D1", "tea?")} if in_thread else {}
    await stage.post("Before.", key="s/0", **more)
    stage.slack.fail("chat.postMessage", done=done, **fault)
    with pytest.raises(DeliveryUnknown):
        await stage.post(**more)
    receipt = await stage.post(again=True, **more)
    assert texts(stage.slack) == ["Before.", "There is tea."]
    assert receipt == f"D1/{stage.slack.posts('D1')[-1]['ts']}"


@pytest.mark.usefixtures("quick")
async def test_a_request_that_slack_carries_out_late_is_found(stage: Stage) -> None:
    stage.slack.fail("chat.postMessage", cut=True)
    with pytest.raises(DeliveryUnknown):
        await stage.post()
    arguments = next(arguments for method, arguments in stage.slack.calls if method == "chat.postMessage")
    again = asyncio.create_task(stage.post(again=True))
    async with deadline():
        while not [method for method, _ in stage.slack.calls if method == "conversations.history"][2:]:
            await asyncio.sleep(0.005)
    stage.slack.carry_out("chat.postMessage", arguments)
    await again
    assert texts(stage.slack) == ["There is tea."]


@pytest.mark.usefixtures("quick")
async def test_another_process_finds_what_this_one_posted(slack: SlackServer, tmp_path: Path) -> None:
    async with staged(slack, tmp_path) as stage:
        receipt = await stage.post()
    for _ in range(450):
        slack.write("U1", "D1", "and so on", silent=True)
    async with staged(slack, tmp_path) as stage:
        assert await stage.post(again=True) == receipt
    assert texts(slack) == ["There is tea."]


@pytest.mark.usefixtures("quick")
async def test_metadata_of_others_is_not_ours(stage: Stage) -> None:
    metadata = {"event_type": "exuvia_reply", "event_payload": {"id": "s/1"}}
    stage.slack.write("U2", "D1", "There is no tea.", metadata=metadata, silent=True)
    await stage.post(again=True)
    assert texts(stage.slack) == ["There is tea."]


@pytest.mark.parametrize(
    "error", ["channel_not_found", "not_in_channel", "is_archived", "restricted_action", "messages_tab_disabled"]
)
async def test_what_slack_never_accepts_is_undeliverable(stage: Stage, error: str) -> None:
    stage.slack.fail("chat.postMessage", error=error)
    with pytest.raises(Undeliverable, match=error):
        await stage.post()


async def test_a_limit_is_kept_to_the_second(stage: Stage) -> None:
    stage.slack.fail("chat.postMessage", status=429, error="ratelimited", retry_after=17)
    with pytest.raises(TryLater) as limited:
        await stage.post()
    assert limited.value.after == 17.0
    await stage.post(key="s/2")
    assert texts(stage.slack) == ["There is tea."]


async def test_a_missing_scope_is_named_with_the_place_to_add_it(stage: Stage) -> None:
    stage.slack.scopes -= {"chat:write", "files:write"}
    with pytest.raises(PluginError, match=r"lacks the scope chat:write.*OAuth & Permissions.*reinstall"):
        await stage.post()
    with pytest.raises(Undeliverable, match="files:write"):
        await stage.post("", attachments=(FILE,))


async def test_a_token_that_slack_no_longer_accepts_is_reported_until_it_does(stage: Stage) -> None:
    stage.slack.fail("chat.postMessage", error="token_revoked")
    with pytest.raises(PluginError, match="The token was revoked"):
        await stage.post()
    assert "copy the new token" in stage.inbox.reports.get_nowait()
    await stage.post()
    assert stage.inbox.reports.get_nowait() == ""
    await stage.post(key="s/2")
    assert stage.inbox.reports.empty()


async def test_blocks_that_slack_refuses_are_sent_as_text(stage: Stage) -> None:
    stage.slack.fail("chat.postMessage", error="invalid_blocks")
    await stage.post("# Tea & **more**")
    (post,) = stage.slack.posts("D1")
    assert (post["text"], post.get("blocks")) == ("# Tea &amp; **more**", None)


async def test_30_000_characters_are_posted_in_parts_that_fit(stage: Stage) -> None:
    part = "word " * 2_300
    assert stage.channel.fits(part)
    assert not stage.channel.fits(part * 2)
    await stage.post(part * 3)  # not split, as by a gateway that does not ask
    assert len(texts(stage.slack)[0]) == len(part * 3)


# --- files ------------------------------------------------------------------------------------------------------------


async def test_a_file_is_shared_in_its_thread(stage: Stage) -> None:
    root = await stage.slack.say("U1", "C1", "tea?")
    receipt = await stage.post("", "C1", thread=root, attachments=(FILE,))
    (post,) = stage.slack.posts("C1")
    assert (receipt, post["thread_ts"], post["files"][0]["name"]) == (f"C1/{post['ts']}", root, "a.txt")
    assert stage.slack.files[post["files"][0]["id"]].content == b"tea"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("done", [True, False])
async def test_a_file_is_shared_once(slack: SlackServer, tmp_path: Path, done: bool) -> None:
    slack.fail("files.completeUploadExternal", cut=True, done=done)
    async with staged(slack, tmp_path) as stage:
        with pytest.raises(DeliveryUnknown):
            await stage.post("", attachments=(FILE,))
    async with staged(slack, tmp_path) as stage:
        await stage.post("", attachments=(FILE,), again=True)
    assert len(slack.posts("D1")) == 1
    assert len(slack.files) == 1


@pytest.mark.usefixtures("quick")
async def test_a_file_that_slack_does_not_show_is_sent_again(stage: Stage) -> None:
    stage.slack.share_files = False
    with pytest.raises(DeliveryUnknown, match="not shown"):
        await stage.post("", attachments=(FILE,))
    stage.slack.share_files = True
    await stage.post("", attachments=(FILE,), again=True)
    assert len(stage.slack.posts("D1")) == 1


async def test_an_empty_file_is_undeliverable(stage: Stage) -> None:
    with pytest.raises(Undeliverable, match="empty"):
        await stage.post("", attachments=(OutputFile(content=b"", media="text/plain", name="a"),))


# --- activity, and what the page says -----------------------------------------------------------------------------------


async def test_a_status_is_shown_in_threads_until_slack_refuses_it(stage: Stage) -> None:
    await stage.channel.show_activity(ChannelActivity(chat="D1"))
    await stage.channel.show_activity(ChannelActivity(chat="C1", thread="1.2"))
    assert stage.slack.statuses == [("C1", "1.2", "is thinking…")]
    stage.slack.fail("assistant.threads.setStatus", error="missing_scope")
    with pytest.raises(PluginError):
        await stage.channel.show_activity(ChannelActivity(chat="C1", thread="1.2"))
    await stage.channel.show_activity(ChannelActivity(chat="C1", thread="1.2"))
    assert len(stage.slack.statuses) == 1


async def test_the_scopes_of_the_manifest_suffice(slack: SlackServer, tmp_path: Path) -> None:
    manifest = yaml.safe_load(PAGE.read_text().partition("```yaml\n")[2].partition("```")[0])
    slack.scopes = set(manifest["oauth_config"]["scopes"]["bot"])
    for name, kind in (("C2", "channel"), ("G2", "group"), ("M2", "mpim"), ("D2", "im")):
        slack.conversation(name, kind)
    async with staged(slack, tmp_path):
        pass
    file = slack.attach("U1", "a.txt", b"tea", "text/plain")
    for name in ("C2", "G2", "M2", "D2"):
        slack.write("U1", name, "<@U0BOT> tea?", silent=True, files=[file])
    async with staged(slack, tmp_path) as stage:
        messages = [await stage.inbox.next() for _ in range(4)]
        assert {message.chat for message in messages} == {"C2", "G2", "M2", "D2"}
        assert [(len(message.attachments), message.name) for message in messages] == [(1, "U1")] * 4
        await stage.post(attachments=(FILE,))
        await stage.channel.show_activity(ChannelActivity(chat="C2", thread="1.2"))
        assert await stage.post(again=True)
    used = {"app_mentions:read", "reactions:read", "commands"}  # for events that Slack sends
    slack.scopes -= used
    assert slack.scopes == {scope for scope in slack.needed if scope in slack.scopes}
