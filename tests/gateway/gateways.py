"""A real gateway in this process, and a client written from the contract alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from gateway.config.keys import load_config
from gateway.support.home import Home
from gateway.wiring.daemon import Daemon
from plugins.api.chat import ChatRequest, StreamPart
from plugins.host.loading import PluginFolder
from plugins.providers.local_servers import LlamaServer, LMStudio
from plugins.providers.ollama import address as ollama_address
from plugins.providers.scripted import Scripted
from sessions.files.append_file import AppendFile
from tests.waiting import DEADLINE, deadline, until

TOKEN = "a-token-for-tests-that-is-long-enough"

NOBODY = "http://127.0.0.1:9"

Frame = dict[str, Any]


class Client:
    """A websocket client. It keeps all frames; `until` waits for one that matches."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.frames: list[Frame] = []

    async def say(self, type_: str, **fields: Any) -> None:
        await self.socket.send_str(json.dumps({"type": type_, **fields}, ensure_ascii=False))

    async def send(self, text: str, *, session: str = "main", id_: str | None = None) -> str:
        """Send a message; returns its id."""
        id_ = id_ or uuid.uuid4().hex  # `id(self)` would repeat: a later client may get the same address
        await self.say("send", id=id_, session=session, text=text)
        return id_

    async def next(self) -> Frame:
        async with deadline():
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, f"closed: {message.data} {message.extra}"
        frame: Frame = json.loads(message.data)
        self.frames.append(frame)
        return frame

    async def until(self, fits: Callable[[Frame], bool]) -> Frame:
        while not fits(frame := await self.next()):
            pass
        return frame

    async def until_type(self, type_: str, **fields: Any) -> Frame:
        return await self.until(lambda f: f["type"] == type_ and all(f.get(k) == v for k, v in fields.items()))

    async def until_answered(self, id_: str) -> Frame:
        """Return the `accepted` or `error` frame of a message."""
        return await self.until(lambda f: f["type"] in ("accepted", "error") and f.get("id") == id_)

    async def until_event(self, kind: str) -> Frame:
        frame = await self.until(lambda f: f["type"] == "event" and f["event"]["kind"] == kind)
        event: Frame = frame["event"]
        return event

    async def chat(self, text: str, *, session: str = "main") -> str:
        """Send a message and return the text of the answer."""
        await self.send(text, session=session)
        reply = await self.until_event("model_replied")
        await self.until_event("turn_ended")
        answer: str = reply["text"]
        return answer

    async def command(self, text: str, *, session: str = "main") -> str:
        """Send a command and return its answer."""
        await self.send(text, session=session)
        answer: str = (await self.until_event("command_answered"))["answer"]
        return answer

    def events(self, session: str = "main") -> list[tuple[str, Frame]]:
        """Return all events so far, with their session ids."""
        return [(f["session_id"], f["event"]) for f in self.frames if f["type"] == "event" and f["session"] == session]

    async def round_trips(self) -> None:
        """Return once everything sent before has taken effect in the gateway, unless it waits for something."""
        for number in range(3):
            await self.say("ping", id=f"round-{number}")
            await self.until_type("pong", id=f"round-{number}")

    async def closed(self, *, at_once: bool = False) -> int | None:
        """Read until the gateway closes the connection, and return the code. With `at_once` it must not answer anything sent
        from now on."""
        if at_once:
            with contextlib.suppress(aiohttp.ClientConnectionError):  # it has closed already
                await self.say("ping", id="at_once")
        async with deadline():
            while True:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.TEXT:
                    self.frames.append(json.loads(message.data))
                    assert self.frames[-1].get("id") != "at_once", "it is still open"
                elif message.type is aiohttp.WSMsgType.CLOSE:
                    # The socket's own `close_code` is 1006 where its answer to this does not reach the gateway any more.
                    code: int = message.data
                    return code
                else:
                    return self.socket.close_code


@contextlib.contextmanager
def syncs_wait() -> Iterator[threading.Event]:
    """Hold back all syncs of journals within this block until the yielded event is set."""
    go_on, sync = threading.Event(), AppendFile.sync

    def waits(self: AppendFile, *arguments: Any) -> None:
        go_on.wait(DEADLINE)
        sync(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AppendFile, "sync", waits)
        try:
            yield go_on
        finally:
            go_on.set()


@contextlib.contextmanager
def replies_wait(pieces: int = 1) -> Iterator[asyncio.Event]:
    """Hold back each reply of the scripted model after so many pieces, until the yielded event is set."""
    go_on, stream = asyncio.Event(), Scripted.stream

    async def held(self: Scripted, request: ChatRequest) -> AsyncIterator[StreamPart]:
        given = 0
        async with contextlib.aclosing(cast(AsyncGenerator[StreamPart, None], stream(self, request))) as parts:
            async for part in parts:
                if given >= pieces:
                    await go_on.wait()
                given += 1
                yield part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scripted, "stream", held)
        yield go_on


class Gateway:
    """A gateway that runs in this process on a home under `tmp_path`."""

    def __init__(self, home: Path, daemon: Daemon, http: aiohttp.ClientSession) -> None:
        self.home = home
        self.daemon = daemon
        self.http = http
        self.sockets: list[aiohttp.ClientWebSocketResponse] = []

    @property
    def url(self) -> str:
        assert self.daemon.address is not None
        host, port = self.daemon.address
        return f"http://{host}:{port}"

    async def connect(self, token: str | None = TOKEN, **headers: str) -> Client:
        """Open a connection; with a token it is authenticated by header and greeted."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        socket = await self.http.ws_connect(f"{self.url}/ws", headers=headers, max_msg_size=0)
        self.sockets.append(socket)
        client = Client(socket)
        if token is not None:
            assert (await client.next())["type"] == "welcome"
        return client

    def journals(self) -> dict[str, list[Frame]]:
        """Return the events of the journals by session, each session after the one that it succeeds."""
        found = {
            path.stem: [json.loads(line) for line in path.read_bytes().rpartition(b"\n")[0].splitlines()]
            for path in sorted((self.home / "sessions").glob("*.jsonl"))
            if path.stat().st_size  # one that is just being made says nothing yet
        }

        def generation(session: str) -> int:
            before = found[session][0].get("succeeds") if session in found else None
            return generation(before["session"]) + 1 if before else 0

        return {session: found[session] for session in sorted(found, key=lambda s: (generation(s), s))}


class _EmptyMachine:
    """Hides the model servers of this machine. The blocks that need it may end in any order."""

    def __init__(self) -> None:
        self._blocks = 0
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        self._blocks += 1
        if self._blocks == 1:
            self._patch.setattr(ollama_address, "PORT", int(NOBODY.rpartition(":")[2]))
            for kind in (LlamaServer, LMStudio):
                self._patch.setattr(kind, "default_url", NOBODY)

    def __exit__(self, *_: object) -> None:
        self._blocks -= 1
        if not self._blocks:
            self._patch.undo()


EMPTY_MACHINE = _EmptyMachine()
"""A context manager that hides the model servers of this machine, so that no test depends on them."""


@contextlib.asynccontextmanager
async def gateway(
    home: Path,
    *,
    script: Sequence[Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    file: str | None = None,
    plugin: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[Gateway]:
    """Run a gateway whose model is `scripted:echo`, or gives the script's replies, or is what the configuration `file`
    says that it is given. Tools run without approval unless the settings or the file say otherwise, and no model makes
    titles unless the settings do. `plugin` is the folder of one that is loaded from there, `variables` are set in the
    environment that the configuration is read from."""
    home.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, Any] = {"gateway.port": 0, "gateway.token": TOKEN, "agent.titles": False}
    if file is None:
        wanted |= {"agent.model": "scripted:echo"}
    else:
        (home / "config.toml").write_text(file)
    if file is None or "[approvals]" not in file:
        wanted |= {"approvals.default": "allow"}
    if script is not None:
        path = home / "script.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in script))
        wanted |= {"agent.model": "scripted:script", "providers.scripted.script": str(path)}
    wanted |= settings or {}
    environment = {f"EXUVIA__{k.upper().replace('.', '__')}": json.dumps(v) for k, v in wanted.items() if v is not None}
    environment |= variables or {}
    place = Home(home)
    place.make()
    config = load_config(None if file is None else place.config, environment=environment, overrides={})
    daemon = Daemon(place, config, folders=[PluginFolder(plugin)] if plugin else [])
    async with contextlib.AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        stack.enter_context(EMPTY_MACHINE)
        serving = asyncio.create_task(daemon.serve(stack))
        try:
            await until(lambda: not daemon.readiness.refuses or serving.done())
            if serving.done():
                serving.result()
            running = Gateway(home, daemon, http)
            try:
                yield running
            finally:
                await asyncio.gather(*(socket.close() for socket in running.sockets))
        finally:
            daemon.stop()
            await serving
