"""The fake of Slack, as two widely used clients see it: slack-sdk and slack-bolt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack_server import APP_TOKEN, BOT_TOKEN, BOT_USER, SlackServer
from tests.waiting import deadline, until

BUTTONS = [{"type": "actions", "elements": [
    {"type": "button", "action_id": "yes", "value": "/approve", "text": {"type": "plain_text", "text": "Approve"}},
]}]  # fmt: skip


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(ack_seconds=1.0, retry_delays=(0.0, 0.05, 0.05)).serving() as server:
        yield server


@pytest.fixture
def web_client(slack: SlackServer) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, base_url=f"{slack.api}/")


class SdkClient:
    """slack-sdk, connected by Socket Mode. It acknowledges while `answers` is True."""

    def __init__(self, web_client: AsyncWebClient) -> None:
        self.requests: asyncio.Queue[SocketModeRequest] = asyncio.Queue()
        self.answers = True
        self._socket = SocketModeClient(APP_TOKEN, web_client=web_client, ping_interval=1)
        self._socket.socket_mode_request_listeners.append(self._receive)

    async def _receive(self, client: Any, request: SocketModeRequest) -> None:
        self.requests.put_nowait(request)
        if self.answers:
            await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    async def __aenter__(self) -> SdkClient:
        await self._socket.connect_to_new_endpoint()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()  # type: ignore[no-untyped-call]
        await asyncio.wait([self._socket.message_processor])

    async def event(self) -> dict[str, Any]:
        async with deadline():
            while True:
                request = await self.requests.get()
                event: dict[str, Any] = request.payload.get("event", request.payload)
                if event.get("bot_id") is None:
                    return event


async def test_sdk_receives_acknowledges_and_posts(slack: SlackServer, web_client: AsyncWebClient) -> None:
    async with SdkClient(web_client) as client:
        await slack.say("U1", "D1", "Is there tea?")
        event = await client.event()
        assert (event["user"], event["channel"], event["text"]) == ("U1", "D1", "Is there tea?")
        await until(lambda: len(slack.acknowledged) == 1)
        metadata = {"event_type": "reply", "event_payload": {"id": "a/1"}}
        posted = await web_client.chat_postMessage(
            channel="D1", text="Yes.", blocks=BUTTONS, thread_ts=event["ts"], metadata=metadata
        )
        assert posted["ok"]
        await slack.press("U1", "D1", "Approve")
        pressed = await client.event()
        assert (pressed["type"], pressed["user"]["id"], pressed["actions"][0]["value"]) == (
            "block_actions",
            "U1",
            "/approve",
        )
        assert pressed["container"]["thread_ts"] == event["ts"]
        found = await web_client.conversations_replies(channel="D1", ts=event["ts"], include_all_metadata=True)
        assert [each.get("metadata", {}).get("event_payload") for each in found["messages"]] == [None, {"id": "a/1"}]
        assert [each["ts"] for each in (await web_client.conversations_history(channel="D1"))["messages"]] == [event["ts"]]


async def test_sdk_is_sent_again_what_it_did_not_acknowledge(slack: SlackServer, web_client: AsyncWebClient) -> None:
    slack.ack_seconds = 0.1
    async with SdkClient(web_client) as client:
        client.answers = False
        await slack.say("U1", "D1", "Is there tea?")
        async with deadline():
            first, second = await client.requests.get(), await client.requests.get()
        assert (first.retry_attempt, second.retry_attempt, second.retry_reason) == (0, 1, "timeout")
        assert first.payload["event_id"] == second.payload["event_id"]
        assert first.envelope_id != second.envelope_id


async def test_sdk_connects_again_when_asked_to(slack: SlackServer, web_client: AsyncWebClient) -> None:
    async with SdkClient(web_client) as client:
        await slack.disconnect()
        await until(lambda: slack.opened == 2)
        await slack.say("U1", "D1", "Still there?")
        assert (await client.event())["text"] == "Still there?"


async def test_sdk_uploads_and_reads_files(slack: SlackServer, web_client: AsyncWebClient) -> None:
    slack.conversation("D1")
    await web_client.files_upload_v2(channel="D1", filename="a.txt", content="tea")
    (message,) = slack.posts("D1")
    file = (await web_client.files_info(file=message["files"][0]["id"]))["file"]
    assert (file["name"], file["size"]) == ("a.txt", 3)
    assert list(file["shares"]["private"]) == ["D1"]


@pytest.mark.parametrize(
    ("channel", "error"), [("C9", "channel_not_found"), ("C1", "is_archived"), ("C2", "not_in_channel")]
)
async def test_sdk_is_told_why_a_post_is_refused(
    slack: SlackServer, web_client: AsyncWebClient, channel: str, error: str
) -> None:
    slack.conversation("C1", "channel", archived=True)
    slack.conversation("C2", "channel", member=False)
    with pytest.raises(SlackApiError) as refused:
        await web_client.chat_postMessage(channel=channel, text="x")
    assert refused.value.response["error"] == error


async def test_sdk_is_told_of_limits_scopes_and_blocks(slack: SlackServer, web_client: AsyncWebClient) -> None:
    slack.conversation("D1")
    slack.posts_per_second = 0.001
    await web_client.chat_postMessage(channel="D1", text="x")
    with pytest.raises(SlackApiError) as refused:
        await web_client.chat_postMessage(channel="D1", text="x")
    assert (refused.value.response.status_code, refused.value.response.headers["Retry-After"]) == (429, "1")
    slack.posts_per_second = None
    with pytest.raises(SlackApiError, match="invalid_blocks"):
        await web_client.chat_postMessage(channel="D1", text="x", blocks=BUTTONS * 51)
    long = {"type": "rich_text_section", "elements": [{"type": "text", "text": "x" * 13_200}]}
    with pytest.raises(SlackApiError, match="msg_blocks_too_long"):
        await web_client.chat_postMessage(channel="D1", text="x", blocks=[{"type": "rich_text", "elements": [long]}])
    slack.scopes.discard("users:read")
    with pytest.raises(SlackApiError) as refused:
        await web_client.users_info(user="U1")
    assert (refused.value.response["error"], refused.value.response["needed"]) == ("missing_scope", "users:read")


async def test_bolt_answers_a_message_and_a_press(slack: SlackServer, web_client: AsyncWebClient) -> None:
    app, pressed = AsyncApp(client=web_client, token=BOT_TOKEN), asyncio.Event()

    @app.event("app_mention")
    async def mentioned(event: dict[str, Any], say: Any) -> None:
        await say(text=f"Yes, <@{event['user']}>.", blocks=BUTTONS, thread_ts=event["ts"])

    @app.event("message")
    async def message() -> None: ...

    @app.action("yes")
    async def yes(ack: Any, body: dict[str, Any], say: Any) -> None:
        await ack()
        await say(text=f"{body['user']['id']} pressed.")
        pressed.set()

    handler = AsyncSocketModeHandler(app, APP_TOKEN)
    await handler.connect_async()  # type: ignore[no-untyped-call]
    try:
        slack.conversation("C1", "channel")
        await slack.say("U1", "C1", f"<@{BOT_USER}> Is there tea?")
        async with deadline():
            assert (await slack.posted.get())["text"] == "Yes, <@U1>."
            await slack.press("U2", "C1", "Approve")
            await pressed.wait()
            assert (await slack.posted.get())["text"] == "U2 pressed."
        await until(lambda: not slack.lost and len(slack.acknowledged) >= 3)
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]
        await asyncio.wait([handler.client.message_processor])
