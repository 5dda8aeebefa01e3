"""Clients that do random things to a gateway which comes and goes, and write down what they saw."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import time
from dataclasses import replace
from typing import Any

import aiohttp

from gateway.conversations.turn.inbox import MODES
from tests.gateway.gateways import TOKEN
from tests.torture.history import Attempt, Event, History, Stream

HEADERS = {"Authorization": f"Bearer {TOKEN}"}

OPERATIONS = {
    "say": 50,
    "again": 10,
    "conflict": 4,
    "cancel": 6,
    "new": 3,
    "compact": 3,
    "queue": 5,
    "fork": 3,
    "upload": 4,
    "openai": 8,
    "subscribe": 5,
    "history": 2,
}

ANSWER_SECONDS = 20.0
"""Time for the answer to a frame; after it the client connects again."""


class Shared:
    """State of all clients: the gateway's address, the keys, what was sent, and the history."""

    def __init__(self, port: int, history: History) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.history = history
        self.keys = ["k0", "k1", "k2"]
        self.uploaded: list[str] = []


class TortureClient:
    """One client with one connection at a time. It resumes each key that it knows where it saw it last."""

    def __init__(self, name: str, shared: Shared, http: aiohttp.ClientSession, dice: random.Random) -> None:
        self.name = name
        self._shared = shared
        self._history = shared.history
        self._http = http
        self._dice = dice
        self._socket: aiohttp.ClientWebSocketResponse
        self._streams: dict[str, Stream] = {}
        self._answers: dict[str, asyncio.Future[Event]] = {}
        self._beginnings: dict[str, Stream] = {}
        self._number = 0
        self._sent: list[Attempt] = []
        self.places: dict[str, dict[str, int]] = {}
        """The last event that was seen without a gap, by key and session, in the order of the sessions."""
        self._closed: set[str] = set()
        self._ended: set[str] = set()
        """Keys whose subscription the gateway ended, or refused for now."""

    async def run(self, pause: float) -> None:
        """Connect again and again, and do something, until cancelled."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                async with self.connection():
                    while not self._socket.closed:
                        await self._do()
                        await self._resume_ended()
                        await asyncio.sleep(self._dice.choice([0, 0, pause, pause * 10]))
            await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def connection(self) -> Any:
        """Connect, and go on with the subscriptions."""
        timeout = aiohttp.ClientWSTimeout(ws_close=1.0)
        async with asyncio.timeout(ANSWER_SECONDS):
            self._socket = await self._http.ws_connect(
                f"{self._shared.url}/ws", headers=HEADERS, max_msg_size=0, timeout=timeout
            )
        self._streams, self._answers, self._beginnings = {}, {}, {}
        reading = asyncio.create_task(self._read())
        try:
            for key in list(self.places):
                await self._resume(key)
            yield
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError, ConnectionError):
                await reading
            await self._socket.close()

    async def catch_up(self, heads: dict[str, int]) -> None:
        """Follow every known key until all events up to the heads of the sessions were seen."""
        async with self.connection():
            while any(seq < heads.get(session, 0) for seen in self.places.values() for session, seq in seen.items()):
                if self._socket.closed:
                    raise ConnectionError("the gateway closed the connection of a client that catches up")
                await self._resume_ended()
                await asyncio.sleep(0.02)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(json.loads(message.data))
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("the connection ended"))
                    answer.exception()

    def _take(self, frame: Event) -> None:
        if frame["type"] == "event":
            self._see(frame["session"], frame["session_id"], frame["event"])
            return
        if frame["type"] == "settings" and (stream := self._beginnings.pop(frame.get("id", ""), None)):
            self._begin(stream)
        if frame["type"] == "error" and "session" in frame:  # its log could not be read just now
            self._streams.pop(frame["session"], None)
            self._ended.add(frame["session"])
        answer = self._answers.get(frame.get("id", ""))
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def _begin(self, stream: Stream) -> None:
        self._streams[stream.key] = stream
        self._history.streams.append(stream)

    def _see(self, key: str, session: str, event: Event) -> None:
        if key not in self._streams:
            self._begin(Stream(self.name, key))
        self._streams[key].events.append((session, event))
        seen = self.places.setdefault(key, {})
        if session not in seen:
            seen[session] = event["seq"]
            self._history.followed[self.name, session] = event["seq"]
        elif event["seq"] == seen[session] + 1:
            seen[session] += 1
        if event["kind"] == "session_closed" and seen[session] == event["seq"]:  # and nothing before it is missing
            self._closed.add(session)

    async def _ask(self, type_: str, id_: str, **fields: Any) -> Event:
        """Send a frame and return what answers it."""
        answer: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._answers[id_] = answer
        try:
            await self._socket.send_str(json.dumps({"type": type_, "id": id_, **fields}))
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        finally:
            self._answers.pop(id_, None)

    def _name(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    # --- what it does -------------------------------------------------------------------------------------------------

    async def _do(self) -> None:
        (what,) = self._dice.choices([*OPERATIONS], [*OPERATIONS.values()])
        self._history.operations[what] += 1
        key = self._dice.choice(self._shared.keys)
        match what:
            case "new" | "compact":
                await self._send(key, f"/{what}")
            case "queue":
                await self._send(key, f"/queue {self._dice.choice(MODES)}")
            case "again" if self._sent:
                await self._repeat(self._dice.choice(self._sent[-50:]))
            case "conflict" if known := [attempt for attempt in self._sent[-50:] if attempt.outcome == "accepted"]:
                attempt = self._dice.choice(known)
                await self._attempt(Attempt(id=attempt.id, key=attempt.key, text="another text", began=time.monotonic()))
            case "cancel":
                await self._socket.send_str(json.dumps({"type": "cancel", "session": key}))
            case "fork":
                await self._fork(key)
            case "upload":
                await self._upload(key)
            case "openai":
                await self._openai(key)
            case "subscribe" if key in self.places:
                await self._resume(key, back=self._dice.randrange(5))
            case "history" if key in self.places:
                await self._ask("history", self._name(), session=key, limit=20)
            case _:
                await self._send(key, f"{self.name} says {self._number} " + "x" * self._dice.choice([0, 10, 3000]))

    async def _send(self, key: str, text: str, **fields: Any) -> None:
        await self._attempt(Attempt(id=self._name(), key=key, text=text, began=time.monotonic()), **fields)

    async def _repeat(self, attempt: Attempt) -> None:
        again = Attempt(id=attempt.id, key=attempt.key, text=attempt.text, began=time.monotonic())
        await self._attempt(again)

    async def _attempt(self, attempt: Attempt, **fields: Any) -> None:
        """Send a message, and write down what became of it."""
        try:
            frame = await self._ask("send", attempt.id, session=attempt.key, text=attempt.text, **fields)
        except BaseException:
            self._note(replace(attempt, ended=time.monotonic()), **fields)
            raise
        done = replace(attempt, ended=time.monotonic(), outcome=frame.get("code", "accepted"))
        if frame["type"] == "accepted":
            done = replace(done, session=frame["session_id"], seq=frame["seq"], duplicate=frame["duplicate"])
        self._note(done, **fields)

    def _note(self, attempt: Attempt, **fields: Any) -> None:
        self._history.attempts.append(attempt)
        if not fields and attempt.outcome != "conflict" and attempt.text != "another text":
            self._sent.append(attempt)

    async def _resume(self, key: str, back: int = 0) -> None:
        """Subscribe from the oldest session on that may have more, `back` events before the last that was seen."""
        seen = self.places[key]
        session = next((session for session in seen if session not in self._closed), next(reversed(seen)))
        first = self._history.followed[self.name, session]
        after = max(first - 1, seen[session] - back)
        id_ = self._name()
        self._beginnings[id_] = Stream(self.name, key, session, after)
        frame = await self._ask("subscribe", id_, session=key, session_id=session, after=after)
        if frame["type"] == "error" and frame["code"] in ("storage_failed", "busy"):
            self._ended.add(key)
        elif frame["type"] == "error":
            self._history.findings.append(
                f"lost: {self.name} saw event {after} of {session} ({key}) and may not go on from it: {frame['message']}"
            )

    async def _resume_ended(self) -> None:
        ended, self._ended = self._ended, set()
        for key in ended:
            await self._resume(key)

    async def _fork(self, key: str) -> None:
        fields = {"upto": self._dice.randrange(1, 60)} if self._dice.random() < 0.5 else {}
        wanted = {"key": f"f{self._dice.randrange(6)}"} if self._dice.random() < 0.5 else {}
        frame = await self._ask("fork", self._name(), session=key, **fields, **wanted)
        if frame["type"] == "forked":
            self._history.forks.append(frame)
            if len(self._shared.keys) < 7:
                self._shared.keys.append(frame["session"])

    async def _upload(self, key: str) -> None:
        content = f"a file of {self._name()} ".encode() * self._dice.choice([1, 1000])
        url, timeout = f"{self._shared.url}/attachments?name=a.txt", aiohttp.ClientTimeout(ANSWER_SECONDS)
        async with self._http.post(url, data=content, headers=HEADERS, timeout=timeout) as answer:
            if answer.status != 201:
                return
            sha256 = (await answer.json())["sha256"]
        if sha256 != hashlib.sha256(content).hexdigest():
            self._history.findings.append(f"replaced: an upload got the hash {sha256}")
        self._history.uploads[sha256] = False
        if self._dice.random() < 0.7:
            await self._send(key, "with a file", attachments=[{"sha256": sha256}])

    async def _openai(self, key: str) -> None:
        attempt = Attempt(id=self._name(), key=key, text=f"{self.name} asks by the API", began=time.monotonic())
        body = {"model": "exuvia", "stream": True, "messages": [{"role": "user", "content": attempt.text}]}
        headers = HEADERS | {"X-Exuvia-Session": key, "Idempotency-Key": attempt.id}
        timeout = aiohttp.ClientTimeout(ANSWER_SECONDS)
        try:
            url = f"{self._shared.url}/v1/chat/completions"
            async with self._http.post(url, json=body, headers=headers, timeout=timeout) as answer:
                if (seq := answer.headers.get("X-Exuvia-Seq")) is not None:
                    session, duplicate = answer.headers["X-Exuvia-Session-Id"], answer.headers["X-Exuvia-Duplicate"]
                    attempt = replace(
                        attempt, outcome="accepted", session=session, seq=int(seq), duplicate=duplicate == "true"
                    )
                if self._dice.random() < 0.5:
                    await answer.read()
        finally:
            self._note(replace(attempt, ended=time.monotonic()))


async def collect(shared: Shared, http: aiohttp.ClientSession) -> None:
    """Ask a gateway at the end which sessions it lists, and for every upload."""
    async with http.ws_connect(f"{shared.url}/ws", headers=HEADERS, max_msg_size=0) as socket:
        await socket.send_str('{"type": "sessions", "id": "all"}')
        async for message in socket:
            if (frame := json.loads(message.data))["type"] == "sessions":
                rows = frame["sessions"]
                shared.history.listed = {row["session"]: (row["session_id"], row["head"]) for row in rows}
                break
    for sha256 in shared.history.uploads:
        async with http.get(f"{shared.url}/attachments/{sha256}", headers=HEADERS) as answer:
            content = await answer.read()
            shared.history.uploads[sha256] = answer.status == 200 and hashlib.sha256(content).hexdigest() == sha256
