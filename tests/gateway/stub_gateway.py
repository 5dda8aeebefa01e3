"""A small gateway of the contract, in memory, for tests of its clients: it can cut any connection at any frame.

It speaks the protocol of `docs/websocket.md` over a real socket, with events of the real vocabulary, and answers each
message with its own words. It is no model of the real gateway's insides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import WSMsgType, web

from gateway.errors import GatewayError
from sessions.events import (
    CommandAnswered,
    Event,
    Failure,
    MessageReceived,
    ModelReplied,
    Recorded,
    RequestSent,
    SessionClosed,
    SessionOpened,
    Succession,
    TurnEnded,
    TurnStarted,
)
from sessions.wire import FIRST, encode, public

TOKEN = "a-token-for-tests-and-nothing-else"


class Peer:
    """One connection. `cursors` holds the last seq that it was given of each session it follows."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.cursors: dict[str, int] | None = None


class StubGateway:
    """`cuts` are counts of frames, over all connections, at which the connection is lost instead of the frame being sent.
    `pieces` splits an answer into deltas; `going_on` holds back turns while it is cleared."""

    def __init__(self, *, cuts: frozenset[int] = frozenset(), pieces: Callable[[str], list[str]] = str.split) -> None:
        self.cuts = cuts
        self.pieces = pieces
        self.going_on = asyncio.Event()
        self.going_on.set()
        self.sent = 0
        self.greetings = 0
        self.journals: dict[str, list[bytes]] = {}
        self.failing: Failure | None = None
        self.busy = 0
        """How many messages are refused as `busy` before one is taken."""
        self.cancelled = asyncio.Event()
        self._ids: dict[str, tuple[str, int]] = {}
        self._turns = 0
        self._peers: set[Peer] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def current(self) -> str:
        """The newest session."""
        return list(self.journals)[-1]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.going_on.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        app = web.Application()
        app.router.add_get("/ws", self._enter)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Lose every connection and listen no more."""
        for peer in tuple(self._peers):
            self._lose(peer)
        assert self._runner is not None
        await self._runner.cleanup()

    def events(self) -> list[tuple[str, int]]:
        """Session and seq of every event there is, in the order of the sessions."""
        return [(session, seq) for session, lines in self.journals.items() for seq in range(1, len(lines) + 1)]

    # --- connections --------------------------------------------------------------------------------------------------

    async def _enter(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        hello = json.loads((await socket.receive()).data)
        if hello["token"] != TOKEN:
            await socket.close(code=4401, message=b"unknown token")
            return socket
        self.greetings += 1
        peer = Peer(socket)
        self._peers.add(peer)
        try:
            await self._say(peer, type="welcome", protocol=1, server="stub", limits={"frame": 1 << 20}, model="stub:echo")
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await self._take(peer, json.loads(message.data))
        except (ConnectionError, Lost):
            pass
        finally:
            self._peers.discard(peer)
        return socket

    def _lose(self, peer: Peer) -> None:
        """As when a cable is pulled: no close frame."""
        self._peers.discard(peer)
        if peer.socket._req is not None and peer.socket._req.transport is not None:
            peer.socket._req.transport.abort()

    async def _send(self, peer: Peer, text: str) -> None:
        self.sent += 1
        if self.sent in self.cuts:
            self._lose(peer)
            raise Lost("cut")
        await peer.socket.send_str(text)

    async def _say(self, peer: Peer, **fields: Any) -> None:
        await self._send(peer, json.dumps(fields))

    async def _deliver(self) -> None:
        """Give every peer the events it has not had."""
        for peer in tuple(self._peers):
            try:
                await self._catch_up(peer)
            except (ConnectionError, Lost):
                self._lose(peer)

    async def _catch_up(self, peer: Peer) -> None:
        for session, lines in self.journals.items():
            if peer.cursors is None or session not in peer.cursors:
                continue
            while (after := peer.cursors[session]) < len(lines):
                peer.cursors[session] = after + 1
                event = public(lines[after]).decode()
                await self._send(peer, f'{{"type":"event","session":"main","session_id":"{session}","event":{event}}}')

    # --- frames -------------------------------------------------------------------------------------------------------

    async def _take(self, peer: Peer, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "sessions":
                rows = [
                    {"session": "main", "session_id": session, "head": len(self.journals[session]), "at": ""}
                    for session in list(self.journals)[-1:]
                ]
                await self._say(peer, type="sessions", id=frame["id"], sessions=rows)
            case "subscribe":
                await self._subscribe(peer, frame)
            case "send":
                await self._receive(peer, frame)
            case "cancel":
                self.cancelled.set()
                self.going_on.set()

    async def _subscribe(self, peer: Peer, frame: dict[str, Any]) -> None:
        session, after = frame["session_id"], frame["after"]
        if session not in self.journals:
            await self._say(peer, type="error", id=frame["id"], code="unknown_session", message="It is not known.")
        elif after > (head := len(self.journals[session])):
            await self._say(peer, type="error", id=frame["id"], code="bad_request", message="Beyond.", head=head)
        else:
            self._follow(peer, session, after)
            await self._catch_up(peer)

    def _follow(self, peer: Peer, session: str, after: int) -> None:
        sessions = list(self.journals)
        peer.cursors = {**dict.fromkeys(sessions[sessions.index(session) + 1 :], 0), session: after}

    async def _receive(self, peer: Peer, frame: dict[str, Any]) -> None:
        if self.busy:
            self.busy -= 1
            await self._say(peer, type="error", id=frame["id"], code="busy", message="Too much waits.", retry_after=0.05)
            return
        duplicate = frame["id"] in self._ids
        if not duplicate:
            self._ids[frame["id"]] = self._note_message(frame)
        session, seq = self._ids[frame["id"]]
        if peer.cursors is None:
            self._follow(peer, session, seq - 1)
        if not duplicate:
            self._spawn(self._answer(session, seq, frame["text"]))
        await self._say(
            peer, type="accepted", id=frame["id"], session="main", session_id=session, seq=seq, duplicate=duplicate
        )
        await self._catch_up(peer)

    def _note_message(self, frame: dict[str, Any]) -> tuple[str, int]:
        if not self.journals:
            self._open(None)
        message = MessageReceived(
            id=frame["id"],
            client="stub",
            sender="owner",
            channel="websocket",
            chat="private",
            text=frame["text"],
            attachments=(),
        )
        return self.current, self.note(self.current, message)

    # --- the log ------------------------------------------------------------------------------------------------------

    def note(self, session: str, event: Event, *, turn: int | None = None) -> int:
        """Add an event to a session; returns its seq."""
        lines = self.journals[session]
        recorded = Recorded(seq=len(lines) + 1, at="2026-11-21T03:12:41.123Z", turn=turn, event=event)
        lines.append(encode(recorded, lines[-1][-19:-3] if lines else FIRST)[0])
        return recorded.seq

    def _open(self, succeeds: Succession | None) -> None:
        session = f"20261121-031241-stub{len(self.journals)}"
        self.journals[session] = []
        self.note(session, SessionOpened(format=1, session=session, key="main", person="owner", succeeds=succeeds))
        for peer in self._peers:
            if peer.cursors is not None:
                peer.cursors[session] = 0

    async def _answer(self, session: str, seq: int, text: str) -> None:
        await asyncio.sleep(0)
        if text.startswith("/"):
            if text == "/new":
                self._open(Succession(session=session, seq=seq))
            self.note(session, CommandAnswered(answers=seq, answer=f"{text} is done", failed=False))
            if text == "/new":
                self.note(session, SessionClosed(reason="succeeded"))
        else:
            await self._turn(session, seq, text)
        await self._deliver()

    async def _turn(self, session: str, seq: int, text: str) -> None:
        self._turns += 1
        turn = self._turns
        self.note(session, TurnStarted(takes=(seq,), provider="stub", model="echo", window=None, reserve=0), turn=turn)
        self.note(session, RequestSent(purpose="answer", sha256="", messages=1, tokens=1), turn=turn)
        await self._deliver()
        await self.stream(session, turn, 1, self.pieces(text))
        await self.going_on.wait()
        if self.failing is None:
            answer = ModelReplied(reply=1, model="echo", text=text, calls=(), stop="end", usage=None)
            self.note(session, answer, turn=turn)
        outcome = "failed" if self.failing else "cancelled" if self.cancelled.is_set() else "replied"
        self.note(session, TurnEnded(outcome=outcome, millis=1, error=self.failing), turn=turn)  # type: ignore[arg-type]

    async def stream(self, session: str, turn: int, reply: int, pieces: list[str]) -> None:
        """Send deltas to whoever follows the session."""
        offset = 0
        for piece in pieces:
            for peer in tuple(self._peers):
                if peer.cursors is not None and session in peer.cursors:
                    try:
                        await self._say(
                            peer,
                            type="delta",
                            session="main",
                            session_id=session,
                            turn=turn,
                            reply=reply,
                            offset=offset,
                            text=piece,
                        )
                    except (ConnectionError, Lost):
                        self._lose(peer)
            offset += len(piece)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Lost(GatewayError):
    """The connection was cut on purpose."""
