"""A fake of Discord: its gateway (v10) with sessions that can be resumed, and the part of its REST API that a bot needs.

tests/channels/test_discord_clients.py has discord.py and hikari talk to it. Everything that happens is dispatched to each
session, connected or not, and replayed by RESUME; a session that is forgotten leaves a gap, which only the REST API fills.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Self
from urllib.parse import quote

from aiohttp import BodyPartReader, WSMsgType, web

from tests.servers.discord_rules import ApiError, check_components, check_message

TOKEN = "MTAwMDAwMDAwMDAwMDAwMDAwMQ.GfakeX.0123456789abcdefghijklmnopqrstuvwxyz01"
EPOCH = 1_420_070_400_000
BOT = "1000000000000000001"
APPLICATION = "1000000000000000002"
BOT_ROLE = "1000000000000000003"

GUILDS, GUILD_MESSAGES, GUILD_REACTIONS = 1 << 0, 1 << 9, 1 << 10
DIRECT_MESSAGES, DIRECT_REACTIONS, MESSAGE_CONTENT = 1 << 12, 1 << 13, 1 << 15
PRIVILEGED = {1 << 1: "GUILD_MEMBERS", 1 << 8: "GUILD_PRESENCES", MESSAGE_CONTENT: "MESSAGE_CONTENT"}

_NEEDS = {
    "GUILD_CREATE": GUILDS, "GUILD_DELETE": GUILDS, "THREAD_CREATE": GUILDS, "CHANNEL_CREATE": GUILDS,
    "MESSAGE_CREATE": GUILD_MESSAGES, "MESSAGE_UPDATE": GUILD_MESSAGES, "MESSAGE_DELETE": GUILD_MESSAGES,
    "MESSAGE_REACTION_ADD": GUILD_REACTIONS,
}  # fmt: skip
_DIRECT = {GUILD_MESSAGES: DIRECT_MESSAGES, GUILD_REACTIONS: DIRECT_REACTIONS}

Json = dict[str, Any]


@dataclass
class Session:
    """A session of the gateway: its events, numbered from 1, and its connection while it has one."""

    id: str
    intents: int
    events: list[Json] = field(default_factory=list)
    connection: Connection | None = None


@dataclass(eq=False)
class Connection:
    """One websocket. What is to be sent waits in `outgoing`; None closes it."""

    socket: web.WebSocketResponse
    transport: asyncio.Transport
    deflate: Any = None
    outgoing: asyncio.Queue[Json | tuple[int, str] | None] = field(default_factory=asyncio.Queue)
    session: Session | None = None
    beats: int = 0
    last_beat: int = 0
    closed: bool = False

    def send(self, frame: Json) -> None:
        self.outgoing.put_nowait(frame)

    async def write(self, delay: Callable[[], Awaitable[None]]) -> None:
        """Send what waits until the connection is closed."""
        while (frame := await self.outgoing.get()) is not None:
            await delay()
            if isinstance(frame, tuple):
                self.closed = True
                await self.socket.close(code=frame[0], message=frame[1].encode())
                return
            text = json.dumps(frame)
            with suppress(ConnectionError):
                if self.deflate is None:
                    await self.socket.send_str(text)
                else:
                    await self.socket.send_bytes(
                        self.deflate.compress(text.encode()) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
                    )


@dataclass
class Bucket:
    """A rate limit: `limit` requests in `seconds`."""

    limit: int
    seconds: float
    left: int = 0
    until: float = 0.0


class DiscordServer:
    """The fake. Use it as an async context manager.

    Attributes:
        heartbeat: Milliseconds between two heartbeats.
        acknowledges: False: heartbeats are not acknowledged, as on a connection that is dead.
        refuses: True: no websocket is opened.
        enabled: The privileged intents that the portal has switched on.
        limits: Requests and seconds of a rate limit, by route ("POST /channels/{channel}/messages").
        failures: Responses (status, body, headers) for the next requests of a route, before it does anything.
        lost: Routes whose next response is lost after the request has been carried out.
        forbidden: Channels that refuse every request, with Discord's code.
        busy: Channels whose rate limit is exhausted for so many seconds.
        nonce_seconds: Seconds for which a nonce is remembered.
        identifies: How many sessions may still be started.
        public_port: The port that clients are told; its own by default.
    """

    def __init__(self, *, heartbeat: int = 41_250, limits: dict[str, tuple[int, float]] | None = None) -> None:
        self.heartbeat = heartbeat
        self.acknowledges = True
        self.refuses = False
        self.enabled = MESSAGE_CONTENT
        self.limits = limits or {}
        self.failures: dict[str, list[tuple[int, Any, dict[str, str]]]] = defaultdict(list)
        self.lost: list[str] = []
        self.forbidden: dict[str, int] = {}
        self.busy: dict[str, float] = {}
        self.nonce_seconds = 300.0
        self.interaction_seconds = 3.0
        self.identifies = 1000
        self.identify_reset_ms = 86_400_000
        self.delay: Callable[[], Awaitable[None]] = _no_delay
        self.users: dict[str, Json] = {BOT: _user(BOT, "Exuvia", bot=True)}
        self.guilds: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self.messages: dict[str, list[Json]] = defaultdict(list)
        self.sent: asyncio.Queue[Json] = asyncio.Queue()
        self.typing: list[str] = []
        self.requests: list[tuple[str, float]] = []
        self.sessions: dict[str, Session] = {}
        self.connections: set[Connection] = set()
        self.interactions: dict[str, Json] = {}
        self.identified = 0
        self.resumed = 0
        self.logs: list[str] = []
        self._files: dict[str, bytes] = {}
        self._nonces: dict[tuple[str, str], tuple[float, Json]] = {}
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._numbers = count(1)
        self._last_id = 0
        self.port = self.public_port = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20, middlewares=[self._api])
        routes: dict[str, Callable[[web.Request], Awaitable[Any]]] = {
            "GET /users/@me": self._me,
            "GET /applications/@me": self._application,
            "GET /oauth2/applications/@me": self._application,
            "GET /gateway": self._gateway,
            "GET /gateway/bot": self._gateway,
            "POST /users/@me/channels": self._open_dm,
            "GET /channels/{channel}": self._get_channel,
            "GET /channels/{channel}/messages": self._list_messages,
            "POST /channels/{channel}/messages": self._create_message,
            "GET /channels/{channel}/messages/{message}": self._get_message,
            "PATCH /channels/{channel}/messages/{message}": self._edit_message,
            "DELETE /channels/{channel}/messages/{message}": self._delete_message,
            "POST /channels/{channel}/typing": self._typing,
            "POST /interactions/{interaction}/{token}/callback": self._callback,
            "POST /webhooks/{application}/{token}": self._follow_up,
        }
        for route, handler in routes.items():
            method, _, path = route.partition(" ")
            app.router.add_route(method, f"/api/v10{path}", handler, name=None)
        app.router.add_get("/gateway/", self._websocket)
        app.router.add_get("/attachments/{channel}/{id}/{name:(?s:.*)}", self._download)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.public_port = self.public_port or self.port
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sever()
        await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.public_port}/api/v10"

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.public_port}/gateway/"

    # --- the people ---------------------------------------------------------------------------------------------------

    def snowflake(self) -> str:
        """Return an id that is larger than all before."""
        self._last_id = max(self._last_id + 1, (int(time.time() * 1000) - EPOCH) << 22)
        return str(self._last_id)

    def user(self, name: str, *, number: str = "") -> str:
        """Add somebody and return their id."""
        made = _user(number or self.snowflake(), name)
        self.users[made["id"]] = made
        return str(made["id"])

    def dm(self, user: str, *, number: str = "") -> str:
        """Add the direct messages of the bot with somebody and return the channel's id."""
        channel = number or self.snowflake()
        self.channels[channel] = {"id": channel, "type": 1, "recipients": [self.users[user]], "last_message_id": None}
        return channel

    def guild(self, name: str) -> str:
        """Add a server of which the bot is a member and return its id."""
        guild = self.snowflake()
        roles = [_role(guild, "@everyone"), _role(BOT_ROLE, "Exuvia", tags={"bot_id": BOT})]
        self.guilds[guild] = {"id": guild, "name": name, "roles": roles, "owner_id": BOT}
        self.dispatch("GUILD_CREATE", self._guild_data(guild))
        return guild

    def text_channel(self, guild: str, name: str, *, kind: int = 0) -> str:
        """Add a channel of a server (of type 0, a text channel; 15 is a forum) and return its id."""
        channel = {
            "id": self.snowflake(), "type": kind, "guild_id": guild, "name": name, "position": 0, "topic": None,
            "permission_overwrites": [], "nsfw": False, "parent_id": None, "last_message_id": None, "flags": 0,
        }  # fmt: skip
        if kind == 15:
            channel |= {"available_tags": [], "default_reaction_emoji": None, "default_sort_order": None,
                        "default_forum_layout": 0}  # fmt: skip
        self.channels[str(channel["id"])] = channel
        self.dispatch("CHANNEL_CREATE", channel)
        return str(channel["id"])

    def thread(self, parent: str, name: str, *, silent: bool = False) -> str:
        """Add a thread, or the post of a forum, and return its id. `silent`: the bot is told nothing of it."""
        thread = {
            "id": self.snowflake(), "type": 11, "guild_id": self.channels[parent]["guild_id"], "parent_id": parent,
            "name": name, "owner_id": BOT, "last_message_id": None, "message_count": 0, "member_count": 1,
            "rate_limit_per_user": 0, "flags": 0, "total_message_sent": 0,
            "thread_metadata": {"archived": False, "auto_archive_duration": 1440, "locked": False,
                                "archive_timestamp": _now(), "create_timestamp": _now()},
        }  # fmt: skip
        self.channels[str(thread["id"])] = thread
        if not silent:
            self.dispatch("THREAD_CREATE", thread | {"newly_created": True})
        return str(thread["id"])

    def say(
        self, author: str, channel: str, text: str, *, reply_to: Json | None = None, files: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> Json:  # fmt: skip
        """Send a message on behalf of somebody and return it."""
        uploads = [(name, body, "") for name, body in (files or {}).items()]
        payload = {"content": text} | ({"message_reference": {"message_id": reply_to["id"]}} if reply_to else {})
        return self._post(author, channel, payload, uploads, **fields)

    def edit(self, message: Json, text: str) -> Json:
        """Edit somebody's message."""
        stored = self._stored(message)
        stored |= {"content": text, "edited_timestamp": _now()}
        self.dispatch("MESSAGE_UPDATE", self._event_of(stored))
        return stored

    def unfurl(self, message: Json) -> None:
        """Tell of a message whose links now have previews, which is an update without an edit."""
        self.dispatch("MESSAGE_UPDATE", self._event_of(self._stored(message) | {"embeds": [{"type": "link", "title": "x"}]}))

    def delete(self, message: Json) -> None:
        """Delete a message."""
        self.messages[message["channel_id"]].remove(self._stored(message))
        guild = self.channels[message["channel_id"]].get("guild_id")
        data = {"id": message["id"], "channel_id": message["channel_id"]} | ({"guild_id": guild} if guild else {})
        self.dispatch("MESSAGE_DELETE", data)

    def react(self, user: str, message: Json, emoji: str) -> None:
        """Put a reaction on a message."""
        guild = self.channels[message["channel_id"]].get("guild_id")
        data = {"user_id": user, "channel_id": message["channel_id"], "message_id": message["id"], "burst": False,
                "message_author_id": message["author"]["id"], "emoji": {"id": None, "name": emoji}, "type": 0}  # fmt: skip
        self.dispatch("MESSAGE_REACTION_ADD", data | ({"guild_id": guild} if guild else {}))

    def press(self, user: str, message: Json, label: str) -> str:
        """Press a button of a message on behalf of somebody. Return the interaction's id."""
        buttons = [button for row in message["components"] for button in row["components"]]
        (custom_id,) = [button["custom_id"] for button in buttons if button["label"] == label]
        channel = self.channels[message["channel_id"]]
        number = self.snowflake()
        data: Json = {
            "id": number, "application_id": APPLICATION, "type": 3, "version": 1, "token": f"token-{number}",
            "channel_id": channel["id"], "channel": channel | {"permissions": "0"}, "message": message, "locale": "en-US",
            "app_permissions": "0", "entitlements": [], "context": 0 if "guild_id" in channel else 1,
            "authorizing_integration_owners": {"0": channel.get("guild_id", "0")}, "attachment_size_limit": 10485760,
            "data": {"custom_id": custom_id, "component_type": 2},
        }  # fmt: skip
        if "guild_id" in channel:
            data |= {"guild_id": channel["guild_id"], "guild_locale": "en-US"}
            data |= {"member": _member() | {"user": self.users[user], "permissions": "0"}}
        else:
            data["user"] = self.users[user]
        known = {"token": data["token"], "at": time.monotonic(), "answer": None, "channel": channel["id"], "follow_ups": []}
        self.interactions[number] = known
        self.dispatch("INTERACTION_CREATE", data)
        return number

    def posts(self, channel: str) -> list[Json]:
        """Return the messages of the bot in a channel."""
        return [message for message in self.messages[channel] if message["author"]["id"] == BOT]

    def next_file(self, name: str) -> bytes:
        """Return the content of the newest uploaded file with a name."""
        return next(body for path, body in reversed(self._files.items()) if path.endswith(f"/{name}"))

    # --- faults -------------------------------------------------------------------------------------------------------

    def sever(self) -> None:
        """Break all connections, without closing them properly."""
        for connection in tuple(self.connections):
            connection.transport.abort()
            connection.outgoing.put_nowait(None)

    def close(self, code: int, reason: str = "") -> None:
        """Close all connections with a code."""
        for connection in tuple(self.connections):
            connection.outgoing.put_nowait((code, reason))

    def tell(self, op: int, data: Any = None) -> None:
        """Send an opcode to all connections: 7 asks to reconnect, 9 says that the session is invalid, 1 asks for a beat."""
        for connection in tuple(self.connections):
            if op == 9 and not data and connection.session is not None:
                self.sessions.pop(connection.session.id, None)
            connection.send({"op": op, "d": data, "s": None, "t": None})

    def forget_sessions(self) -> None:
        """End all sessions: what happens until the next IDENTIFY is in no session."""
        self.sessions.clear()
        self.sever()

    # --- the gateway --------------------------------------------------------------------------------------------------

    def dispatch(self, kind: str, data: Json) -> None:
        """Send an event to all sessions whose intents want it."""
        for session in self.sessions.values():
            needs = _NEEDS.get(kind, 0)
            if "guild_id" not in data and kind != "GUILD_CREATE":
                needs = _DIRECT.get(needs, needs)
            if session.intents & needs == needs:
                self._to_session(session, kind, _visible(kind, data, session.intents))

    def _to_session(self, session: Session, kind: str, data: Json) -> None:
        event = {"op": 0, "t": kind, "s": len(session.events) + 1, "d": json.loads(json.dumps(data))}
        session.events.append(event)
        if session.connection is not None:
            session.connection.send(event)

    async def _websocket(self, request: web.Request) -> web.WebSocketResponse:
        if self.refuses:
            raise web.HTTPServiceUnavailable
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if request.query.get("v") != "10" or request.query.get("encoding") != "json":
            await socket.close(code=4012, message=b"Invalid API version")
            return socket
        deflate = zlib.compressobj() if request.query.get("compress") == "zlib-stream" else None
        assert request.transport is not None
        connection = Connection(socket, request.transport, deflate)
        self.connections.add(connection)
        writer = asyncio.create_task(connection.write(self._delayed))
        connection.send({"op": 10, "d": {"heartbeat_interval": self.heartbeat}, "s": None, "t": None})
        try:
            async for message in socket:
                frame = json.loads(message.data) if message.type in (WSMsgType.TEXT, WSMsgType.BINARY) else {}
                if frame and (refused := self._frame(connection, frame)):
                    connection.outgoing.put_nowait(refused)
        finally:
            self.connections.discard(connection)
            if (session := connection.session) is not None and session.connection is connection:
                session.connection = None
                if socket.close_code in (1000, 1001) and not connection.closed:
                    self.sessions.pop(session.id, None)
            connection.outgoing.put_nowait(None)
            await asyncio.wait([writer], timeout=1)
            writer.cancel()
        return socket

    async def _delayed(self) -> None:
        await self.delay()

    def _frame(self, connection: Connection, frame: Json) -> tuple[int, str] | None:
        """Handle a frame of a client. Return the code and reason with which it is disconnected, if it is."""
        data: Any = frame.get("d")
        match frame["op"]:
            case 1:
                connection.beats, connection.last_beat = connection.beats + 1, data or 0
                if self.acknowledges:
                    connection.send({"op": 11, "d": None, "s": None, "t": None})
            case 2 | 6 if connection.session is not None:
                return 4005, "Already authenticated."
            case 2 | 6 if data["token"].removeprefix("Bot ") != TOKEN:
                return 4004, "Authentication failed."
            case 2:
                return self._identify(connection, data)
            case 6:
                self._resume(connection, data)
            case 3 | 4 | 8:
                pass
            case _:
                return 4001, "Unknown opcode."
        return None

    def _identify(self, connection: Connection, data: Json) -> tuple[int, str] | None:
        if not {"os", "browser", "device"} <= set(data["properties"]):
            return 4002, "Error while decoding payload."
        if not isinstance(data.get("intents"), int) or data["intents"] >= 1 << 26:
            return 4013, "Invalid intent(s)."
        if any(data["intents"] & intent and not self.enabled & intent for intent in PRIVILEGED):
            return 4014, "Disallowed intent(s)."
        if self.identifies <= 0:
            connection.send({"op": 9, "d": False, "s": None, "t": None})
            return None
        self.identifies -= 1
        self.identified += 1
        session = Session(f"session-{next(self._numbers)}-{self.snowflake()}", data["intents"], connection=connection)
        connection.session = session
        self.sessions[session.id] = session
        ready = {
            "v": 10, "user": self._own_user(), "session_id": session.id, "resume_gateway_url": self.gateway_url,
            "session_type": "normal", "private_channels": [], "relationships": [], "presences": [],
            "application": {"id": APPLICATION, "flags": self._flags()}, "shard": data.get("shard", [0, 1]),
            "guilds": [{"id": guild, "unavailable": True} for guild in self.guilds],
        }  # fmt: skip
        self._to_session(session, "READY", ready)
        if session.intents & GUILDS:
            for guild in self.guilds:
                self._to_session(session, "GUILD_CREATE", self._guild_data(guild))
        return None

    def _resume(self, connection: Connection, data: Json) -> None:
        session = self.sessions.get(data["session_id"])
        if session is None or not 0 <= (data["seq"] or 0) <= len(session.events):
            connection.send({"op": 9, "d": False, "s": None, "t": None})
            return
        self.resumed += 1
        session.connection = connection.session = None
        session.connection, connection.session = connection, session
        for event in session.events[data["seq"] or 0 :]:
            connection.send(event)
        self._to_session(session, "RESUMED", {"_trace": []})

    def _guild_data(self, guild: str) -> Json:
        there = [each for each in self.channels.values() if each.get("guild_id") == guild]
        channels, threads = [each for each in there if each["type"] != 11], [each for each in there if each["type"] == 11]
        me = _member() | {"user": self.users[BOT], "roles": [BOT_ROLE]}
        return self.guilds[guild] | {
            "channels": channels, "threads": threads, "members": [me], "joined_at": _now(), "large": False,
            "unavailable": False, "member_count": 2, "voice_states": [],
            "presences": [], "stage_instances": [], "guild_scheduled_events": [], "soundboard_sounds": [], "icon": None,
            "splash": None, "discovery_splash": None, "afk_channel_id": None, "afk_timeout": 300, "verification_level": 0,
            "default_message_notifications": 0, "explicit_content_filter": 0, "emojis": [], "stickers": [], "features": [],
            "mfa_level": 0, "application_id": None, "system_channel_id": None, "system_channel_flags": 0,
            "rules_channel_id": None, "vanity_url_code": None, "description": None, "banner": None, "premium_tier": 0,
            "premium_subscription_count": 0, "preferred_locale": "en-US", "public_updates_channel_id": None, "nsfw_level": 0,
            "premium_progress_bar_enabled": False, "safety_alerts_channel_id": None, "incidents_data": None,
        }  # fmt: skip

    def _own_user(self) -> Json:
        return self.users[BOT] | {"mfa_enabled": True, "verified": True, "email": None, "flags": 0, "locale": "en-US"}

    def _flags(self) -> int:
        """Return the application's flags: 1 << 19 is MESSAGE_CONTENT for an application that is not verified."""
        return 1 << 19 if self.enabled & MESSAGE_CONTENT else 0

    # --- the REST API -------------------------------------------------------------------------------------------------

    @web.middleware
    async def _api(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> web.StreamResponse:
        path = request.match_info.route.resource.canonical if request.match_info.route.resource else ""
        if not path.startswith("/api/v10"):
            if request.path.startswith("/api"):
                return web.json_response({"message": "404: Not Found", "code": 0}, status=404)
            return await handler(request)  # type: ignore[no-any-return]
        route = f"{request.method} {path.removeprefix('/api/v10')}"
        self.requests.append((route, time.monotonic()))
        await self._delayed()
        headers = {} if _has_own_token(path) else self._limited(route, request.match_info.get("channel", ""))
        try:
            if self.failures[route]:
                status, body, more = self.failures[route].pop(0)
                text = body if isinstance(body, str) else json.dumps(body)
                media = "text/html" if isinstance(body, str) else "application/json"
                return web.Response(status=status, text=text, content_type=media, headers=more)
            self._check(request, headers)
            answer = await handler(request)
        except ConnectionError:
            return web.Response(status=400)  # nobody reads it
        except ApiError as error:
            return _json(error.body, headers, error.status)
        if route in self.lost:
            self.lost.remove(route)
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=204, headers=headers) if answer is None else _json(answer, headers)

    def _check(self, request: web.Request, headers: dict[str, str]) -> None:
        if not _has_own_token(request.path):
            if request.headers.get("Authorization") != f"Bot {TOKEN}":
                raise ApiError(401, 0, "401: Unauthorized")
            if "DiscordBot" not in request.headers.get("User-Agent", ""):
                raise ApiError(403, 40333, "internal network error")
        if headers.get("Retry-After"):
            wait = float(headers.pop("X-Exact-Wait"))
            raise ApiError(429, 0, "You are being rate limited.", retry_after=wait, **{"global": False})
        channel = request.match_info.get("channel")
        if channel is not None:
            if channel in self.busy:
                raise ApiError(429, 0, "You are being rate limited.", retry_after=self.busy[channel], **{"global": False})
            if channel in self.forbidden:
                code = self.forbidden[channel]
                raise ApiError(404 if code == 10003 else 403, code, {10003: "Unknown Channel"}.get(code, "Missing Access"))
            if channel not in self.channels:
                raise ApiError(404, 10003, "Unknown Channel")

    def _limited(self, route: str, major: str) -> dict[str, str]:
        """Count a request. Return the headers of its rate limit, with Retry-After if it exceeds it."""
        limit, seconds = self.limits.get(route, (1000, 1.0))
        now = time.time()
        bucket = self._buckets.setdefault((route, major), Bucket(limit, seconds))
        if now >= bucket.until:
            bucket.left, bucket.until = limit, now + seconds
        bucket.left -= 1
        headers = {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(max(0, bucket.left)),
            "X-RateLimit-Reset": f"{bucket.until:.3f}",
            "X-RateLimit-Reset-After": f"{bucket.until - now:.3f}",
            "X-RateLimit-Bucket": f"{abs(hash(route)):x}",
        }
        if bucket.left < 0:
            wait = max(0.001, round(bucket.until - now, 3))
            headers |= {"Retry-After": str(int(wait) + 1), "X-RateLimit-Scope": "user", "X-Exact-Wait": str(wait)}
        return headers

    async def _me(self, request: web.Request) -> Json:
        return self._own_user()

    async def _application(self, request: web.Request) -> Json:
        return {
            "id": APPLICATION, "name": "Exuvia", "icon": None, "description": "", "bot_public": True, "flags": self._flags(),
            "bot_require_code_grant": False, "verify_key": "00", "owner": self.users[BOT], "team": None, "summary": "",
            "rpc_origins": [], "hook": True, "approximate_guild_count": len(self.guilds),
        }  # fmt: skip

    async def _gateway(self, request: web.Request) -> Json:
        if not request.path.endswith("bot"):
            return {"url": self.gateway_url}
        limit = {"total": 1000, "remaining": self.identifies, "reset_after": self.identify_reset_ms, "max_concurrency": 1}
        return {"url": self.gateway_url, "shards": 1, "session_start_limit": limit}

    async def _open_dm(self, request: web.Request) -> Json:
        user = str((await request.json())["recipient_id"])
        for channel in self.channels.values():
            if channel["type"] == 1 and channel["recipients"][0]["id"] == user:
                return channel
        return self.channels[self.dm(user)]

    async def _get_channel(self, request: web.Request) -> Json:
        return self.channels[request.match_info["channel"]]

    async def _list_messages(self, request: web.Request) -> list[Json]:
        messages = self.messages[request.match_info["channel"]]
        limit = int(request.query.get("limit", "50"))
        if not 1 <= limit <= 100:
            raise ApiError(400, 50035, "Invalid Form Body", errors={"limit": {"_errors": []}})
        if after := int(request.query.get("after", "0")):  # the oldest that follow, newest first
            return [self._fetched(each) for each in messages if int(each["id"]) > after][:limit][::-1]
        before = int(request.query.get("before", str(1 << 63)))
        return [self._fetched(each) for each in messages if int(each["id"]) < before][-limit:][::-1]

    async def _get_message(self, request: web.Request) -> Json:
        return self._fetched(self._by_id(request))

    async def _create_message(self, request: web.Request) -> Json:
        payload, files = await _body(request)
        check_message(payload, [(name, body) for name, body, _ in files])
        if reference := payload.get("message_reference"):
            known = {message["id"] for message in self.messages[request.match_info["channel"]]}
            if str(reference.get("message_id")) not in known and reference.get("fail_if_not_exists", True):
                errors = {"message_reference": {"_errors": [{"code": "MESSAGE_REFERENCE_UNKNOWN_MESSAGE"}]}}
                raise ApiError(400, 50035, "Invalid Form Body", errors=errors)
        return self._post(BOT, request.match_info["channel"], payload, files)

    async def _edit_message(self, request: web.Request) -> Json:
        message, (payload, _) = self._by_id(request), await _body(request)
        if message["author"]["id"] != BOT:
            raise ApiError(403, 50005, "Cannot edit a message authored by another user")
        check_components(payload.get("components") or [])
        message |= {key: value for key, value in payload.items() if key in ("content", "components")}
        message["edited_timestamp"] = _now()
        self.dispatch("MESSAGE_UPDATE", self._event_of(message))
        return message

    async def _delete_message(self, request: web.Request) -> None:
        self.delete(self._by_id(request))

    async def _typing(self, request: web.Request) -> None:
        self.typing.append(request.match_info["channel"])

    async def _callback(self, request: web.Request) -> Json | None:
        payload, _ = await _body(request)
        known = self.interactions.get(request.match_info["interaction"])
        if known is None or known["token"] != request.match_info["token"]:
            raise ApiError(404, 10062, "Unknown interaction")
        if known["answer"] is not None:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        if time.monotonic() - known["at"] > self.interaction_seconds:
            raise ApiError(404, 10062, "Unknown interaction")
        if payload["type"] not in (4, 5, 6, 7):
            raise ApiError(400, 50035, "Invalid Form Body")
        known["answer"] = payload
        if request.query.get("with_response") not in ("1", "true", "True"):
            return None
        interaction = {"id": request.match_info["interaction"], "type": 3, "response_message_loading": False}
        return {"interaction": interaction, "resource": {"type": payload["type"]}}

    async def _follow_up(self, request: web.Request) -> Json:
        payload, files = await _body(request)
        known = next((i for i in self.interactions.values() if i["token"] == request.match_info["token"]), None)
        if request.match_info["application"] != APPLICATION or known is None or known["answer"] is None:
            raise ApiError(404, 10015, "Unknown Webhook")
        check_message(payload, [(name, body) for name, body, _ in files])
        known["follow_ups"].append(payload)
        if payload.get("flags", 0) & 64:
            return self._message(BOT, known["channel"], payload, [])
        return self._post(BOT, known["channel"], payload, files)

    async def _download(self, request: web.Request) -> web.Response:
        await self._delayed()
        if (body := self._files.get(request.path)) is None:
            return web.Response(status=404, text="This content is no longer available.")
        return web.Response(body=body)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _post(self, author: str, channel: str, payload: Json, files: list[tuple[str, bytes, str]], **fields: Any) -> Json:
        nonce = payload.get("nonce")
        key, now = (channel, f"{author} {nonce}"), time.monotonic()
        if payload.get("enforce_nonce") and key in self._nonces:
            at, message = self._nonces[key]
            if now - at < self.nonce_seconds:
                return message
        message = self._message(author, channel, payload, files) | fields
        if nonce is not None:
            self._nonces[key] = now, message
        self.messages[channel].append(message)
        self.channels[channel]["last_message_id"] = message["id"]
        if author == BOT:
            self.sent.put_nowait(message)
        self.dispatch("MESSAGE_CREATE", self._event_of(message))
        return message

    def _message(self, author: str, channel: str, payload: Json, files: list[tuple[str, bytes, str]]) -> Json:
        text, number = payload.get("content") or "", self.snowflake()
        may_mention = "users" in payload.get("allowed_mentions", {}).get("parse", ["users"])
        message: Json = {
            "id": number, "channel_id": channel, "author": self.users[author], "content": text.strip(), "timestamp": _now(),
            "edited_timestamp": None, "tts": False, "mention_everyone": False, "pinned": False, "type": 0, "embeds": [],
            "mentions": [user for key, user in self.users.items() if f"<@{key}>" in text and may_mention],
            "mention_channels": [],
            "mention_roles": [BOT_ROLE] if f"<@&{BOT_ROLE}>" in text else [], "flags": payload.get("flags", 0),
            "components": _numbered(payload.get("components") or []), "attachments": [],
        }  # fmt: skip
        for name, body, media in files:
            file = self.snowflake()
            path = f"/attachments/{channel}/{file}/{name}"
            self._files[path] = body
            url = f"http://127.0.0.1:{self.public_port}{quote(path)}"
            attachment = {"id": file, "filename": name, "size": len(body), "url": url, "proxy_url": url}
            message["attachments"].append(attachment | ({"content_type": media} if media else {}))
        if "nonce" in payload:
            message["nonce"] = payload["nonce"]
        if reference := payload.get("message_reference"):
            target = next((m for m in self.messages[channel] if m["id"] == str(reference["message_id"])), None)
            if target is not None:
                message["type"], quoted = 19, {key: value for key, value in target.items() if key != "referenced_message"}
                message["message_reference"] = {"message_id": target["id"], "channel_id": channel, "type": 0}
                message["referenced_message"] = quoted
                if author != BOT and target["author"] not in message["mentions"]:
                    message["mentions"].append(target["author"])
        return message

    def _event_of(self, message: Json) -> Json:
        guild = self.channels[message["channel_id"]].get("guild_id")
        return message | ({"guild_id": guild, "member": _member()} if guild else {})

    def _fetched(self, message: Json) -> Json:
        """Return a message as the REST API shows it: the nonce is not kept."""
        return {key: value for key, value in message.items() if key != "nonce"}

    def _stored(self, message: Json) -> Json:
        return next(each for each in self.messages[message["channel_id"]] if each["id"] == message["id"])

    def _by_id(self, request: web.Request) -> Json:
        for message in self.messages[request.match_info["channel"]]:
            if message["id"] == request.match_info["message"]:
                return message
        raise ApiError(404, 10008, "Unknown Message")


def _visible(kind: str, data: Json, intents: int) -> Json:
    """Return an event without the content of messages that the bot may not read without the intent."""
    may_read = intents & MESSAGE_CONTENT or "guild_id" not in data or not kind.startswith("MESSAGE_")
    if may_read or "author" not in data or data["author"]["id"] == BOT or any(u["id"] == BOT for u in data["mentions"]):
        return data
    return data | {"content": "", "attachments": [], "embeds": [], "components": []}


def _has_own_token(path: str) -> bool:
    """Return True for requests that carry the token of an interaction; rate limits do not count these."""
    return "/interactions/" in path or "/webhooks/" in path


async def _no_delay() -> None:
    """Answer at once."""


async def _body(request: web.Request) -> tuple[Json, list[tuple[str, bytes, str]]]:
    """Return the JSON of a request and its files: name, content and media type."""
    if request.content_type != "multipart/form-data":
        return (await request.json() if request.can_read_body else {}), []
    payload: Json = {}
    files: list[tuple[str, bytes, str]] = []
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        if part.name == "payload_json":
            payload = json.loads(await part.read(decode=True))
        else:
            assert part.name is not None
            assert part.name.startswith("files[")
            files.append((part.filename or "unknown", bytes(await part.read()), part.headers.get("Content-Type", "")))
    return payload, files


def _numbered(rows: list[Json]) -> list[Json]:
    """Return rows of components, each component with a number as its id."""
    numbers = count(1)
    return [
        {"id": next(numbers)} | row | {"components": [{"id": next(numbers)} | each for each in row["components"]]}
        for row in rows
    ]


def _json(body: Any, headers: dict[str, str], status: int = 200) -> web.Response:
    """Return a response of exactly the media type that discord.py looks for."""
    return web.Response(
        status=status, body=json.dumps(body).encode(), headers={**headers, "Content-Type": "application/json"}
    )


def _user(number: str, name: str, *, bot: bool = False) -> Json:
    return {"id": number, "username": name.lower(), "global_name": name, "discriminator": "0", "avatar": None, "bot": bot,
            "public_flags": 0}  # fmt: skip


def _member() -> Json:
    return {"roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0, "nick": None,
            "avatar": None, "premium_since": None, "pending": False}  # fmt: skip


def _role(number: str, name: str, **more: Any) -> Json:
    return {"id": number, "name": name, "color": 0, "hoist": False, "position": 0, "permissions": "8", "managed": bool(more),
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None}, "icon": None,
            "unicode_emoji": None, "mentionable": True, "flags": 0} | more  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat()
