"""Communication with the service manager, over real sockets and with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest

from benchmarks.ports import free_port
from gateway.support.errors import StartRefused
from gateway.wiring.daemon import YOUNG_OBJECTS
from gateway.wiring.systemd import Supervisor, before_watchdog, passed_socket
from tests.gateway.gateways import TOKEN, gateway
from tests.waiting import DEADLINE, VirtualTime, deadline, until

ROOT = Path(__file__).parents[2]


class Manager:
    """A notify socket that collects its datagrams."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """Return the datagrams since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self._socket.recv(4096).decode())
        return found

    async def until(self, line: str) -> str:
        """Return the first datagram with this line."""
        async with deadline():
            while True:
                for datagram in self.heard():
                    if line in datagram.splitlines():
                        return datagram
                await asyncio.sleep(0.005)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract address"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "a path" else f"@exuvia-test-{os.getpid()}-{time.monotonic_ns()}"
    heard = Manager(address)
    yield heard
    heard.close()


# The child's own number must be in LISTEN_PID and WATCHDOG_PID, so a first step in the child sets them, as systemd does.
_STARTER = """
import os, sys
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
passed = int(sys.argv[1])
if passed >= 0:
    os.dup2(passed, 3, inheritable=True)
os.execv(sys.executable, [sys.executable, "-m", "exuvia", "run", *sys.argv[2:]])
"""


@contextlib.asynccontextmanager
async def started(
    home: Path, *words: str, passed: socket.socket | None = None, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `exuvia run` as a service manager does."""
    number = passed.fileno() if passed else -1
    known = {"EXUVIA__AGENT__MODEL": "scripted:echo", "PYTHONPATH": str(ROOT), **environment}
    if passed:
        known["LISTEN_FDS"] = "1"
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", _STARTER, str(number), "--home", str(home), *words],
        env={**os.environ, **known},
        pass_fds=[number] if passed else [],
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_ready_is_sent_once_the_gateway_listens_and_stopping_when_it_stops(tmp_path: Path, manager: Manager) -> None:
    port = free_port()
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "400000", "EXUVIA__GATEWAY__STOP_WITHIN": "3s"}
    async with started(tmp_path / "home", "--port", str(port), environment=environment) as process:
        ready = await manager.until("READY=1")
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 200
        assert f"STATUS=Listening on 127.0.0.1:{port}." in ready
        await manager.until("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=13000000" in (await manager.until("STOPPING=1")).splitlines()
        assert await process.wait() == 0


async def test_garbage_is_collected_from_the_moment_that_the_gateway_is_ready(tmp_path: Path) -> None:
    usual = gc.get_threshold()
    gc.disable()  # as the command line does for the time of the imports
    try:
        async with gateway(tmp_path):
            assert gc.isenabled()
            assert gc.get_freeze_count()
            assert gc.get_threshold()[0] == YOUNG_OBJECTS
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)
        gc.enable()


async def test_a_gateway_that_cannot_listen_never_sends_ready(tmp_path: Path, manager: Manager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with started(tmp_path / "home", "--port", port, environment={"NOTIFY_SOCKET": manager.address}) as process:
            assert await process.wait() == 2
    assert manager.heard() == []


async def test_a_blocked_loop_does_not_feed_the_watchdog(manager: Manager) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid())})
    with VirtualTime() as virtual:
        async with supervisor.watchdog_fed():
            await asyncio.sleep(0.31)
            assert manager.heard() == ["WATCHDOG=1"] * 7  # at once, and twice in each 0.1 s
            virtual.block(0.3)
            assert manager.heard() == []
            await manager.until("WATCHDOG=1")
        manager.heard()
        await asyncio.sleep(1)
        assert manager.heard() == []


_BLOCKING = """
import time
from pathlib import Path
from plugins.api.tool import ToolOutput
from plugins.api.hookspecs import hookimpl
from sessions.events.messages import ToolDefinition


class Freeze:
    definition = ToolDefinition(name="freeze", description="Holds everything up.", parameters={"type": "object"})
    repeatable = False

    def __init__(self, context):
        pass

    async def run(self, arguments, call):
        Path(__file__).with_name("frozen").touch()
        time.sleep(600)
        return ToolOutput(text="never")


@hookimpl
def register_tools():
    return [Freeze]
"""


async def test_a_gateway_whose_loop_is_blocked_is_aborted_as_systemd_does_and_the_next_start_finishes_the_turn(
    tmp_path: Path, manager: Manager
) -> None:
    plugins = tmp_path / "plugins"
    (plugins / "freezing-1.0.dist-info").mkdir(parents=True)
    (plugins / "freezing.py").write_text(_BLOCKING)
    (plugins / "freezing-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: freezing\nVersion: 1.0\n")
    (plugins / "freezing-1.0.dist-info" / "entry_points.txt").write_text("[exuvia]\nfreezing = freezing\n")
    story = tmp_path / "story.jsonl"
    story.write_text('{"text": "", "calls": [{"tool": "freeze", "arguments": {}}]}\n{"text": "it was cut off"}\n')
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "600000",
        "PYTHONPATH": f"{ROOT}:{plugins}",
        "EXUVIA_TOKEN": TOKEN,
        "EXUVIA__AGENT__MODEL": "scripted:script",
        "EXUVIA__PROVIDERS__SCRIPTED__SCRIPT": str(story),
        "EXUVIA__PLUGINS__ALLOW": '["freezing"]',
        "EXUVIA__APPROVALS__DEFAULT": '"allow"',
        "EXUVIA__PLUGINS__HOLD_LIMIT": '"0s"',  # else the gateway would end by itself before
    }
    port = str(free_port())
    async with started(tmp_path / "home", "--port", port, environment=environment) as process:
        await manager.until("READY=1")
        async with aiohttp.ClientSession() as http:
            await talk(http, port, "freeze")
            await until((plugins / "frozen").exists)
            fed = time.monotonic()
            async with deadline():
                while time.monotonic() - fed < 0.6:  # as long as systemd waits, with WatchdogSec of this length
                    if any("WATCHDOG=1" in datagram for datagram in manager.heard()):
                        fed = time.monotonic()
                    await asyncio.sleep(0.02)
        process.send_signal(signal.SIGABRT)
        _, complaints = await process.communicate()
        assert process.returncode == -signal.SIGABRT
        assert b"in run" in complaints  # where it hung, for whoever reads the journal
    async with started(tmp_path / "home", "--port", port, environment=environment):
        await manager.until("READY=1")
        async with deadline():
            while b"turn_ended" not in (written := b"".join(p.read_bytes() for p in (tmp_path / "home/sessions").iterdir())):
                await asyncio.sleep(0.02)
    assert b'"outcome":"unknown"' in written
    assert b"it was cut off" in written


async def talk(http: aiohttp.ClientSession, port: str, text: str) -> None:
    """Send a message to a gateway in another process, and wait until it is accepted."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with http.ws_connect(f"http://127.0.0.1:{port}/ws", headers=headers) as client:
        await client.send_json({"type": "send", "id": "1", "session": "main", "text": text})
        while (await client.receive_json(timeout=DEADLINE))["type"] != "accepted":
            pass


@pytest.mark.parametrize(
    "asked", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}]
)
async def test_a_watchdog_that_is_off_or_of_another_process_is_not_fed(asked: dict[str, str], manager: Manager) -> None:
    with VirtualTime():
        async with Supervisor({"NOTIFY_SOCKET": manager.address, **asked}).watchdog_fed():
            await asyncio.sleep(60)
    assert manager.heard() == []


def test_a_missing_manager_is_ignored(tmp_path: Path) -> None:
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("Listening.")


async def test_a_passed_socket_is_listened_on_and_a_connection_made_before_is_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        early = asyncio.create_task(_answer(port))
        await asyncio.sleep(0.05)
        async with started(tmp_path / "home", passed=listening, environment={}) as process:
            assert b" 200 " in await early
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0


async def _answer(port: int) -> bytes:
    """Return the first line of a response, over a connection that nobody accepts yet."""
    async with deadline():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return line


async def test_a_passed_socket_that_others_reach_needs_a_token_on_purpose(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        async with started(tmp_path / "home", passed=listening, environment={}) as process:
            _, said = await process.communicate()
    assert process.returncode == 2
    assert b"0.0.0.0 can be reached from other machines" in said


async def test_a_passed_socket_that_is_no_tcp_listener_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "door"))
        listening.listen()
        async with started(tmp_path / "home", passed=listening, environment={}) as process:
            _, said = await process.communicate()
    assert process.returncode == 2
    assert b"does not listen for TCP" in said


def test_sockets_for_another_process_are_left_alone_and_more_than_one_is_refused() -> None:
    assert passed_socket({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None
    with pytest.raises(StartRefused, match="LISTEN_FDS is 2"):
        passed_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})


SLOW = [{"text": "one two three four five six seven eight " * 3, "delay_ms": 20}]


async def test_a_stop_lets_the_turn_finish_refuses_messages_and_closes_with_service_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=SLOW) as running:
        client = await running.connect()
        await client.send("go")
        await client.until_type("delta")
        running.daemon.stop()
        await until(lambda: running.daemon.readiness.refuses)
        late = await client.until_answered(await client.send("too late"))
        assert (late["type"], late["code"]) == ("error", "busy")
        assert await client.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        [events] = running.journals().values()
        assert [e["outcome"] for e in events if e["kind"] == "turn_ended"] == ["replied"]


@pytest.mark.parametrize("impatience", ["the deadline", "a second signal"])
async def test_a_turn_that_is_not_done_in_time_is_resumed_at_the_next_start(tmp_path: Path, impatience: str) -> None:
    endless = [{"text": "word " * 500, "delay_ms": 50}]
    deadline = "0.2s" if impatience == "the deadline" else "60s"
    async with gateway(tmp_path, script=endless, settings={"gateway.stop_within": deadline}) as running:
        client = await running.connect()
        await client.send("go")
        await client.until_type("delta")
        running.daemon.stop()
        if impatience == "a second signal":
            await until(lambda: running.daemon.readiness.refuses)
            running.daemon.stop()
        assert await client.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        assert [event["kind"] for _, event in client.events()][-1] == "turn_interrupted"
    async with gateway(tmp_path, script=[{"text": "done"}]) as again:
        client = await again.connect()
        await client.say("subscribe", session="main", after=0)
        await client.until_event("turn_ended")
        [events] = again.journals().values()
    kinds = [event["kind"] for event in events]
    assert kinds.count("turn_started") == kinds.count("turn_resumed") == kinds.count("turn_ended") == 1
    assert "done" in json.dumps(events)


@pytest.mark.parametrize(
    ("limit", "asked", "kept"),
    [
        (60, {"WATCHDOG_USEC": "30000000"}, 12),
        (5, {"WATCHDOG_USEC": "30000000"}, 5),
        (0, {"WATCHDOG_USEC": "30000000"}, 0),
        (60, {}, 60),
    ],
)
def test_a_blocking_plugin_ends_the_gateway_before_the_managers_watchdog_does(
    limit: float, asked: dict[str, str], kept: float
) -> None:
    assert before_watchdog(limit, asked) == kept
