"""A fake of Slack: one workspace with the Web API, Socket Mode, and files, as documented, with their errors and limits.

Tests connect Slack's own clients, slack-sdk and slack-bolt, to it as well as the channel.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from aiohttp import WSMsgType, web

from tests.servers.slack_blocks import ApiError, Json, check_blocks, text_of

BOT_TOKEN = "xoxb-100-200-a-bot-token-of-the-tests"
APP_TOKEN = "xapp-1-A0APP-300-an-app-token-of-the-tests"
BOT_USER, BOT, APP, TEAM = "U0BOT", "B0BOT", "A0APP", "T0TEAM"

SCOPES = {
    "app_mentions:read", "channels:history", "channels:read", "chat:write", "files:read", "files:write", "groups:history",
    "groups:read", "im:history", "im:read", "im:write", "mpim:history", "mpim:read", "reactions:read", "users:read",
}  # fmt: skip

_HISTORY = {"channel": "channels:history", "group": "groups:history", "im": "im:history", "mpim": "mpim:history"}
_READ = {"channel": "channels:read", "group": "groups:read", "im": "im:read", "mpim": "mpim:read"}
_TYPES = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}


@dataclass
class Fault:
    """What happens to one call instead of its answer.

    With `done` the call takes effect first, so that only its answer is lost. `hold` delays it until the event is set.
    """

    error: str = ""
    status: int = 200
    retry_after: int = 0
    more: Json = field(default_factory=dict)
    cut: bool = False
    done: bool = False
    hold: asyncio.Event | None = None


@dataclass
class Conversation:
    """A channel, a private channel (`group`), a direct message (`im`) or one of several people (`mpim`)."""

    id: str
    kind: str
    member: bool = True
    archived: bool = False
    messages: list[Json] = field(default_factory=list)

    def find(self, ts: str) -> Json | None:
        return next((message for message in self.messages if message["ts"] == ts), None)


@dataclass(eq=False)
class Connection:
    """A connection of Socket Mode."""

    socket: web.WebSocketResponse
    leaving: bool = False


@dataclass
class Stored:
    """A file."""

    id: str
    name: str
    length: int
    content: bytes | None = None
    media: str = "application/octet-stream"
    user: str = BOT_USER
    shares: dict[str, list[Json]] = field(default_factory=dict)


class SlackServer:
    """The workspace. Attributes may be changed while it runs.

    Attributes:
        scopes: The scopes of the bot token.
        ack_seconds: Seconds after which an event that was not acknowledged is sent again.
        retry_delays: Seconds before each further attempt to deliver an event.
        slow: Seconds that each call takes.
        posts_per_second: The limit of posts for each conversation; None if there is none.
        busy: Conversations for whose posts it asks to wait for seven seconds.
        silent: Conversations in which it posts, and ends the connection without an answer.
    """

    def __init__(self, *, ack_seconds: float = 3.0, retry_delays: tuple[float, ...] = (0.0, 60.0, 300.0)) -> None:
        self.url = ""
        """The address that Slack gives for everything; that of a proxy, where there is one."""
        self.port = 0
        self.scopes = set(SCOPES)
        self.needed: set[str] = set()
        """The scopes that calls needed."""
        self.ack_seconds = ack_seconds
        self.retry_delays = retry_delays
        self.slow: Callable[[], float] = lambda: 0.0
        self.posts_per_second: float | None = None
        self.busy: set[str] = set()
        self.silent: set[str] = set()
        self.bot_token, self.app_token = BOT_TOKEN, APP_TOKEN
        self.socket_mode = True
        self.share_files = True
        self.pongs = True
        self.conversations: dict[str, Conversation] = {}
        self.people: dict[str, str] = {}
        self.files: dict[str, Stored] = {}
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.calls: list[tuple[str, Json]] = []
        self.posted: asyncio.Queue[Json] = asyncio.Queue()
        self.connections: list[Connection] = []
        self.connected = asyncio.Event()
        self.acknowledged: list[str] = []
        """The events and presses that a client acknowledged, by the id of their envelope's payload."""
        self.lost: list[Json] = []
        """Events that no attempt delivered."""
        self.statuses: list[tuple[str, str, str]] = []
        self.opened = 0
        self.attempts = 0
        self._numbers = itertools.count(1)
        self._last_ts = 0
        self._tickets: set[str] = set()
        self._acks: dict[str, asyncio.Future[Json]] = {}
        self._last_post: dict[str, float] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- running ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[SlackServer]:
        """Serve on a port of loopback."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/", self._link)
        app.router.add_post("/upload/{file}", self._upload)
        app.router.add_get("/files-pri/{file}/{name:.*}", self._download)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        try:
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await self.sever()
            await runner.cleanup()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def api(self) -> str:
        """The address of the Web API."""
        return f"{self.url}/api"

    def conversation(self, name: str, kind: str = "im", **more: Any) -> Conversation:
        """Return a conversation, which is made if there is none."""
        if name not in self.conversations:
            self.conversations[name] = Conversation(name, kind, **more)
        return self.conversations[name]

    def ts(self) -> str:
        """Return the next time stamp. None is given twice."""
        self._last_ts = max(self._last_ts + 1, time.time_ns() // 1000)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06}"

    # --- what people do -----------------------------------------------------------------------------------------------

    async def say(self, sender: str, chat: str, text: str, **more: Any) -> str:
        """Write a message on behalf of somebody once a client is connected, and return its time stamp."""
        await self.connected.wait()
        return self.write(sender, chat, text, **more)

    def write(self, sender: str, chat: str, text: str, *, thread: str = "", silent: bool = False, **more: Any) -> str:
        """Write a message. `silent`: no event is sent, as while nobody is connected."""
        conversation = self.conversation(chat)
        ts = self.ts()
        self.people.setdefault(sender, sender)
        message: Json = {
            "type": "message", "user": sender, "ts": ts, "text": text, "team": TEAM,
            "client_msg_id": f"{next(self._numbers):08}-0000-4000-8000-000000000000",
            "blocks": [{"type": "rich_text", "block_id": "b", "elements": []}], **more,
        }  # fmt: skip
        self._add(conversation, message, thread)
        if not silent:
            event = message | {"channel": chat, "event_ts": ts, "channel_type": conversation.kind}
            self.emit(event)
            if f"<@{BOT_USER}>" in text and conversation.kind != "im":
                left_out = {"channel_type", "type"}
                self.emit({"type": "app_mention", **{k: v for k, v in event.items() if k not in left_out}})
        return ts

    def _add(self, conversation: Conversation, message: Json, thread: str) -> None:
        if thread:
            message["thread_ts"] = thread
            if (parent := conversation.find(thread)) is not None:
                parent["thread_ts"] = thread
                parent["reply_count"] = parent.get("reply_count", 0) + 1
                parent["latest_reply"] = message["ts"]
                parent["reply_users"] = sorted({*parent.get("reply_users", []), message.get("user", "")})
        conversation.messages.append(message)

    async def edit(self, sender: str, chat: str, text: str) -> None:
        """Replace the text of somebody's last message."""
        conversation = self.conversation(chat)
        message = next(each for each in reversed(conversation.messages) if each.get("user") == sender)
        self.change(chat, message["ts"], text)

    def change(self, chat: str, ts: str, text: str, *, silent: bool = False) -> None:
        """Replace the text of a message."""
        conversation = self.conversation(chat)
        message = conversation.find(ts)
        assert message is not None
        previous = dict(message)
        message |= {"text": text, "edited": {"user": message["user"], "ts": self.ts()}}
        if not silent:
            self._hidden(conversation, "message_changed", message=dict(message), previous_message=previous)

    def delete(self, chat: str, ts: str) -> None:
        """Delete a message."""
        conversation = self.conversation(chat)
        message = conversation.find(ts)
        assert message is not None
        conversation.messages.remove(message)
        self._hidden(conversation, "message_deleted", deleted_ts=ts, previous_message=message)

    def _hidden(self, conversation: Conversation, subtype: str, **more: Any) -> None:
        ts = self.ts()
        event = {"type": "message", "subtype": subtype, "hidden": True, "channel": conversation.id, "ts": ts, "event_ts": ts}
        self.emit(event | {"channel_type": conversation.kind} | more)

    def react(self, sender: str, chat: str, ts: str, reaction: str) -> None:
        """Put a reaction on a message."""
        message = self.conversation(chat).find(ts) or {}
        item = {"type": "message", "channel": chat, "ts": ts}
        self.emit({"type": "reaction_added", "user": sender, "reaction": reaction, "item": item,
                   "item_user": message.get("user", ""), "event_ts": self.ts()})  # fmt: skip

    async def press(self, sender: str, chat: str, label: str) -> None:
        """Press a button of the last post in a conversation, once a client is connected."""
        await self.connected.wait()
        conversation = self.conversation(chat)
        for message in reversed(conversation.messages):
            for block in message.get("blocks", []):
                for element in block.get("elements", []) if block["type"] == "actions" else []:
                    if element["text"]["text"] == label:
                        self._press(sender, conversation, message, block, element)
                        return
        raise AssertionError(f"no button {label!r} in {chat}")

    def _press(self, sender: str, conversation: Conversation, message: Json, block: Json, element: Json) -> None:
        name = "directmessage" if conversation.kind == "im" else conversation.id
        action = {**element, "block_id": block.get("block_id", "b"), "action_ts": self.ts()}
        container = {"type": "message", "message_ts": message["ts"], "channel_id": conversation.id, "is_ephemeral": False}
        if thread := message.get("thread_ts"):
            container["thread_ts"] = thread
        payload = {
            "type": "block_actions", "user": {"id": sender, "username": sender, "name": sender, "team_id": TEAM},
            "api_app_id": APP, "token": "verification", "container": container, "trigger_id": action["action_ts"],
            "team": {"id": TEAM, "domain": "tests"}, "enterprise": None, "is_enterprise_install": False,
            "channel": {"id": conversation.id, "name": name}, "message": message, "state": {"values": {}},
            "response_url": f"{self.url}/actions", "actions": [action],
        }  # fmt: skip
        self._start(self._deliver("interactive", payload, action["action_ts"], ()))

    def command(self, payload: Json) -> None:
        """Type the slash command of the app."""
        trigger = self.ts()
        self._start(self._deliver("slash_commands", payload | {"trigger_id": trigger}, trigger, ()))

    def attach(self, sender: str, name: str, content: bytes, media: str, **more: Any) -> Json:
        """Store a file of somebody and return its object, for the `files` of a message."""
        stored = Stored(f"F{next(self._numbers):08}", name, len(content), content, media, sender)
        self.files[stored.id] = stored
        return self._file(stored) | more

    async def hear(self) -> tuple[str, str]:
        """Wait for the next post, and return its conversation and text."""
        message = await self.posted.get()
        return message["channel"], text_of(message)

    def posts(self, chat: str) -> list[Json]:
        """Return the posts of the bot in a conversation."""
        return [message for message in self.conversation(chat).messages if message.get("bot_id") == BOT]

    # --- Socket Mode --------------------------------------------------------------------------------------------------

    def emit(self, event: Json) -> str:
        """Send an event, and return its id."""
        event_id = f"Ev{next(self._numbers):08}"
        if (conversation := self.conversations.get(str(event.get("channel", "")))) and not conversation.member:
            return event_id
        payload = {
            "token": "verification", "team_id": TEAM, "api_app_id": APP, "event": event, "type": "event_callback",
            "event_id": event_id, "event_time": int(time.time()), "is_ext_shared_channel": False,
            "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": BOT_USER, "is_bot": True,
                                "is_enterprise_install": False}],
        }  # fmt: skip
        self._start(self._deliver("events_api", payload, event_id, self.retry_delays))
        return event_id

    async def _deliver(self, kind: str, payload: Json, key: str, delays: tuple[float, ...]) -> None:
        """Send an envelope until it is acknowledged, or all attempts failed."""
        reason = ""
        for attempt, delay in enumerate((0.0, *delays)):
            if delay:
                await asyncio.sleep(delay)
            reason = await self._attempt(kind, payload, attempt, reason)
            if not reason:
                self.acknowledged.append(key)
                return
        self.lost.append(payload)

    async def _attempt(self, kind: str, payload: Json, attempt: int, reason: str) -> str:
        """Send an envelope once. Return "" if it was acknowledged, else why not."""
        usable = [each for each in self.connections if not each.leaving] or self.connections
        if not usable:
            return "no_connection"
        envelope = f"{next(self._numbers):08}-envelope"
        more: Json = {"accepts_response_payload": kind != "events_api"}
        if kind == "events_api":
            more |= {"retry_attempt": attempt, "retry_reason": reason}
        self.attempts += 1
        acknowledged = self._acks[envelope] = asyncio.get_running_loop().create_future()
        try:
            connection = usable[next(self._numbers) % len(usable)]
            await connection.socket.send_json({"envelope_id": envelope, "type": kind, "payload": payload, **more})
            async with asyncio.timeout(self.ack_seconds):
                await acknowledged
        except (TimeoutError, ConnectionError, RuntimeError):
            return "timeout"
        finally:
            del self._acks[envelope]
        return ""

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=404)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=self.pongs)
        await socket.prepare(request)
        connection = Connection(socket)
        self.connections.append(connection)
        hello = {"type": "hello", "num_connections": len(self.connections), "connection_info": {"app_id": APP},
                 "debug_info": {"host": "applink-1", "build_number": 1, "approximate_connection_time": 18060}}  # fmt: skip
        try:
            if not self.socket_mode:
                await socket.send_json(
                    {"type": "disconnect", "reason": "link_disabled", "debug_info": {"host": "applink-1"}}
                )
                return socket
            await socket.send_json(hello)
            self.opened += 1
            self.connected.set()
            async for frame in socket:
                if frame.type != WSMsgType.TEXT:
                    continue
                with suppress(ValueError):
                    answer = json.loads(frame.data)
                    waiting = self._acks.get(answer.get("envelope_id", ""))
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer.get("payload") or {})
        except ConnectionError:
            pass
        finally:
            self._gone(connection)
        return socket

    def _gone(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        if not self.connections:
            self.connected.clear()

    async def disconnect(self, reason: str = "refresh_requested", grace: float = 0.0) -> None:
        """Announce to all connections that they end, and end them after `grace` seconds."""
        for connection in tuple(self.connections):
            connection.leaving = True
            with suppress(ConnectionError, RuntimeError):
                await connection.socket.send_json(
                    {"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-1"}}
                )
            self._start(self._close(connection, grace))

    async def _close(self, connection: Connection, grace: float) -> None:
        await asyncio.sleep(grace)
        self._gone(connection)
        with suppress(ConnectionError, RuntimeError):
            await connection.socket.close()

    async def sever(self) -> None:
        """Cut all connections without a word."""
        for connection in tuple(self.connections):
            self._gone(connection)
            transport = connection.socket._req.transport if connection.socket._req is not None else None
            if transport is not None:
                transport.abort()

    # --- Web API ------------------------------------------------------------------------------------------------------

    def fail(self, method: str, times: int = 1, **fault: Any) -> None:
        """Let the next calls of a method fail, see `Fault`."""
        self.faults[method].extend(Fault(**fault) for _ in range(times))

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        try:
            arguments = await _arguments(request)
        except ConnectionError:
            return web.Response(status=400)
        if seconds := self.slow():
            await asyncio.sleep(seconds)
        self.calls.append((method, arguments))
        fault = self.faults[method].popleft() if self.faults[method] else None
        if method == "chat.postMessage" and arguments.get("channel") in self.silent:
            fault = Fault(cut=True, done=True)
        if fault is not None and fault.hold is not None:
            await fault.hold.wait()
        refused = fault is not None and (fault.error or fault.status != 200 or fault.cut) and not fault.done
        body = {"ok": True} if refused else self._answer(method, request, arguments)
        if fault is not None and fault.cut:
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError
        if fault is not None and (fault.error or fault.status != 200):
            headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            return web.json_response({"ok": False, "error": fault.error, **fault.more}, status=fault.status, headers=headers)
        if body.get("error") == "ratelimited":
            return web.json_response(body, status=429, headers={"Retry-After": str(body.pop("retry_after"))})
        return web.json_response(body, headers={"X-OAuth-Scopes": ",".join(sorted(self.scopes))})

    def _answer(self, method: str, request: web.Request, arguments: Json) -> Json:
        handler = self._METHODS.get(method)
        try:
            if handler is None:
                raise ApiError("unknown_method", req_method=method)
            given = request.headers.get("Authorization", "").removeprefix("Bearer ") or str(arguments.pop("token", ""))
            if not given:
                raise ApiError("not_authed")
            if given != (self.app_token if method == "apps.connections.open" else self.bot_token):
                raise ApiError("not_allowed_token_type" if given in (self.app_token, self.bot_token) else "invalid_auth")
            return {"ok": True, **handler(self, arguments)}
        except ApiError as error:
            return error.body

    def carry_out(self, method: str, arguments: Json) -> None:
        """Carry out a call now."""
        self._METHODS[method](self, arguments)

    def _need(self, *scopes: str) -> None:
        self.needed.update(scopes)
        for scope in scopes:
            if scope not in self.scopes:
                raise ApiError("missing_scope", needed=scope, provided=",".join(sorted(self.scopes)))

    def _in(self, arguments: Json, scopes: dict[str, str] | None = None) -> Conversation:
        """Return the conversation that a call names, to which the bot belongs."""
        conversation = self.conversations.get(str(arguments.get("channel", arguments.get("channel_id", ""))))
        if conversation is None:
            raise ApiError("channel_not_found")
        if scopes is not None:
            self._need(scopes[conversation.kind])
        if not conversation.member:
            raise ApiError("not_in_channel")
        return conversation

    def _auth_test(self, _: Json) -> Json:
        return {"url": "https://tests.slack.com/", "team": "Tests", "user": "exuvia", "team_id": TEAM, "user_id": BOT_USER,
                "bot_id": BOT, "is_enterprise_install": False}  # fmt: skip

    def _connections_open(self, _: Json) -> Json:
        ticket = f"ticket-{next(self._numbers)}"
        self._tickets.add(ticket)
        return {"url": f"{self.url.replace('http', 'ws', 1)}/link/?ticket={ticket}&app_id={APP}"}

    def _post_message(self, arguments: Json) -> Json:
        self._need("chat:write")
        conversation = self._in(arguments)
        if conversation.archived:
            raise ApiError("is_archived")
        self._limit(conversation)
        blocks, metadata = arguments.get("blocks") or [], arguments.get("metadata")
        text = str(arguments.get("text") or "")
        check_blocks(blocks)
        if not text and not blocks:
            raise ApiError("no_text")
        if metadata is not None and not (
            isinstance(metadata, dict) and isinstance(metadata.get("event_type"), str)
            and isinstance(metadata.get("event_payload"), dict)
        ):  # fmt: skip
            raise ApiError("invalid_metadata_format")
        thread = str(arguments.get("thread_ts") or "")
        if thread and conversation.find(thread) is None:
            raise ApiError("thread_not_found")
        message: Json = {"type": "message", "user": BOT_USER, "bot_id": BOT, "app_id": APP, "team": TEAM, "ts": self.ts(),
                         "text": text[:40_000], "bot_profile": {"id": BOT, "name": "exuvia"}}  # fmt: skip
        if blocks:
            message["blocks"] = blocks
        if metadata is not None:
            message["metadata"] = metadata
        self._posted(conversation, message, thread)
        return {"channel": conversation.id, "ts": message["ts"], "message": message}

    def _posted(self, conversation: Conversation, message: Json, thread: str) -> None:
        self._add(conversation, message, thread)
        self.posted.put_nowait(message | {"channel": conversation.id})
        event = {key: value for key, value in message.items() if key != "metadata"}
        self.emit(event | {"channel": conversation.id, "event_ts": message["ts"], "channel_type": conversation.kind})

    def _limit(self, conversation: Conversation) -> None:
        if conversation.id in self.busy:
            raise ApiError("ratelimited", retry_after=7)
        if self.posts_per_second is None:
            return
        now = time.monotonic()
        if now - self._last_post.get(conversation.id, -1e9) < 1 / self.posts_per_second:
            raise ApiError("ratelimited", retry_after=1)
        self._last_post[conversation.id] = now

    def _delete_message(self, arguments: Json) -> Json:
        conversation = self._in(arguments)
        message = conversation.find(str(arguments.get("ts")))
        if message is None:
            raise ApiError("message_not_found")
        conversation.messages.remove(message)
        return {"channel": conversation.id, "ts": message["ts"]}

    def _history(self, arguments: Json) -> Json:
        conversation = self._in(arguments, _HISTORY)
        found = [
            message for message in reversed(conversation.messages)
            if message.get("thread_ts", message["ts"]) == message["ts"] or message.get("subtype") == "thread_broadcast"
        ]  # fmt: skip
        return self._page(_between(found, arguments), arguments)

    def _replies(self, arguments: Json) -> Json:
        conversation = self._in(arguments, _HISTORY)
        message = conversation.find(str(arguments.get("ts")))
        if message is None:
            raise ApiError("thread_not_found")
        root = message.get("thread_ts", message["ts"])
        replies = [each for each in conversation.messages if each.get("thread_ts") == root and each["ts"] != root]
        parents = [each for each in conversation.messages if each["ts"] == root]
        return self._page(parents + _between(replies, arguments), arguments)

    def _page(self, messages: list[Json], arguments: Json) -> Json:
        limit = int(arguments.get("limit") or 100)
        if not 1 <= limit <= 1000:
            raise ApiError("invalid_limit")
        start = int(str(arguments.get("cursor") or "at:0").removeprefix("at:"))
        page = [dict(message) for message in messages[start : start + limit]]
        if not _true(arguments.get("include_all_metadata")):
            for message in page:
                message.pop("metadata", None)
        more = start + limit < len(messages)
        return {"messages": page, "has_more": more,
                "response_metadata": {"next_cursor": f"at:{start + limit}" if more else ""}}  # fmt: skip

    def _users_conversations(self, arguments: Json) -> Json:
        kinds = [_TYPES[each.strip()] for each in str(arguments.get("types") or "public_channel").split(",")]
        self._need(*(_READ[kind] for kind in kinds))
        found = [self._channel(each) for each in self.conversations.values() if each.kind in kinds and each.member
                 and not (each.archived and _true(arguments.get("exclude_archived")))]  # fmt: skip
        limit = int(arguments.get("limit") or 100)
        start = int(str(arguments.get("cursor") or "at:0").removeprefix("at:"))
        cursor = f"at:{start + limit}" if start + limit < len(found) else ""
        return {"channels": found[start : start + limit], "response_metadata": {"next_cursor": cursor}}

    def _channel(self, conversation: Conversation) -> Json:
        kind = conversation.kind
        return {"id": conversation.id, "name": conversation.id, "is_channel": kind == "channel", "is_im": kind == "im",
                "is_group": kind == "group", "is_mpim": kind == "mpim", "is_private": kind != "channel",
                "is_archived": conversation.archived, "is_member": conversation.member}  # fmt: skip

    def _conversation_info(self, arguments: Json) -> Json:
        return {"channel": self._channel(self._in(arguments, _READ))}

    def _conversation_open(self, arguments: Json) -> Json:
        self._need("im:write")
        user = str(arguments.get("users"))
        if user not in self.people:
            raise ApiError("user_not_found")
        return {"channel": {"id": self.conversation(f"D-{user}").id}}

    def _user_info(self, arguments: Json) -> Json:
        self._need("users:read")
        user = str(arguments.get("user"))
        if user not in self.people:
            raise ApiError("user_not_found")
        name = self.people[user]
        return {"user": {"id": user, "team_id": TEAM, "name": user, "real_name": name, "is_bot": False,
                         "profile": {"real_name": name, "display_name": name}}}  # fmt: skip

    def _set_status(self, arguments: Json) -> Json:
        self._need("chat:write")
        self.statuses.append((self._in(arguments).id, str(arguments.get("thread_ts")), str(arguments.get("status"))))
        return {}

    # --- files --------------------------------------------------------------------------------------------------------

    def _file(self, stored: Stored) -> Json:
        url = f"{self.url}/files-pri/{TEAM}-{stored.id}/{quote(stored.name, safe='')}"
        return {"id": stored.id, "name": stored.name, "title": stored.name, "mimetype": stored.media, "mode": "hosted",
                "size": stored.length, "user": stored.user, "is_external": False, "file_access": "visible",
                "url_private": url, "url_private_download": url, "shares": {"private": stored.shares}}  # fmt: skip

    def _upload_url(self, arguments: Json) -> Json:
        self._need("files:write")
        name, length = str(arguments.get("filename") or ""), int(arguments.get("length") or 0)
        if not name or length < 1:
            raise ApiError("invalid_arguments")
        stored = Stored(f"F{next(self._numbers):08}", name, length)
        self.files[stored.id] = stored
        return {"upload_url": f"{self.url}/upload/{stored.id}", "file_id": stored.id}

    async def _upload(self, request: web.Request) -> web.Response:
        stored = self.files.get(request.match_info["file"])
        if stored is None:
            return web.Response(status=404)
        if request.content_type == "multipart/form-data":
            part = await anext(aiter(await request.multipart()))
            content = bytes(await part.read())  # type: ignore[union-attr]
        else:
            content = await request.read()
        if len(content) != stored.length:
            return web.Response(status=400, text="length")
        stored.content = content
        return web.Response(text=f"OK - {len(content)}")

    def _complete_upload(self, arguments: Json) -> Json:
        self._need("files:write")
        stored = [self.files.get(each["id"]) for each in arguments.get("files") or []]
        if not stored or any(each is None or each.content is None for each in stored):
            raise ApiError("file_not_found")
        channel = str(arguments.get("channel_id") or "")
        if channel:
            conversation = self._in(arguments)
            if conversation.archived:
                raise ApiError("is_archived")
            for each in stored:
                if each is not None and self.share_files:
                    self._share(conversation, each, arguments)
        return {"files": [{"id": each.id, "title": each.name} for each in stored if each is not None]}

    def _share(self, conversation: Conversation, stored: Stored, arguments: Json) -> None:
        message = {"type": "message", "subtype": "file_share", "user": BOT_USER, "bot_id": BOT, "ts": self.ts(),
                   "text": str(arguments.get("initial_comment") or ""), "files": [self._file(stored)]}  # fmt: skip
        stored.shares.setdefault(conversation.id, []).append({"ts": message["ts"]})
        self._posted(conversation, message, str(arguments.get("thread_ts") or ""))

    def _file_info(self, arguments: Json) -> Json:
        self._need("files:read")
        stored = self.files.get(str(arguments.get("file")))
        if stored is None:
            raise ApiError("file_not_found")
        return {"file": self._file(stored)}

    async def _download(self, request: web.Request) -> web.Response:
        stored = self.files.get(request.match_info["file"].partition("-")[2])
        if stored is None or stored.content is None:
            return web.Response(status=404)
        if request.headers.get("Authorization") != f"Bearer {self.bot_token}" or "files:read" not in self.scopes:
            return web.Response(status=302, headers={"Location": "https://tests.slack.com/?redir=files"})
        return web.Response(body=stored.content, content_type=stored.media)

    _METHODS: ClassVar[dict[str, Callable[[SlackServer, Json], Json]]] = {
        "api.test": lambda _, arguments: {"args": arguments},
        "auth.test": _auth_test,
        "apps.connections.open": _connections_open,
        "chat.postMessage": _post_message,
        "chat.delete": _delete_message,
        "conversations.history": _history,
        "conversations.replies": _replies,
        "conversations.info": _conversation_info,
        "conversations.open": _conversation_open,
        "users.conversations": _users_conversations,
        "users.info": _user_info,
        "assistant.threads.setStatus": _set_status,
        "files.getUploadURLExternal": _upload_url,
        "files.completeUploadExternal": _complete_upload,
        "files.info": _file_info,
    }


async def _arguments(request: web.Request) -> Json:
    """Return the arguments of a call, from the query, a form or JSON. Lists and objects of a form are JSON."""
    arguments: Json = dict(request.query)
    if request.content_type == "application/json":
        body = await request.text()
        arguments |= json.loads(body) if body else {}
    elif request.method == "POST":
        arguments |= {key: value for key, value in (await request.post()).items() if isinstance(value, str)}
    for key in ("blocks", "metadata", "files", "attachments"):
        if isinstance(arguments.get(key), str):
            try:
                arguments[key] = json.loads(arguments[key])
            except ValueError:
                arguments[key] = "not JSON"
    return arguments


def _between(messages: list[Json], arguments: Json) -> list[Json]:
    oldest, latest = float(arguments.get("oldest") or 0), float(arguments.get("latest") or 1e12)
    inclusive = _true(arguments.get("inclusive"))
    return [
        message for message in messages
        if oldest < (ts := float(message["ts"])) < latest or (inclusive and ts in (oldest, latest))
    ]  # fmt: skip


def _true(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1")
