"""The shipped units, run by a real systemd: start, stop, confinement, watchdog, credentials, socket activation."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.ports import free_port
from tests.gateway.gateways import TOKEN, Client, Frame
from tests.service.machine import ROOT, Machine, booted, impossible
from tests.waiting import deadline

REQUIRED = "EXUVIA_TESTS_BOOT_SYSTEMD"
"""Where this variable is set these tests must run: CI sets it where they can."""

BLOCKING = """
import time
from collections.abc import Sequence
from typing import ClassVar

from exuvia import Command, CommandTime, ConversationView, hookimpl


class Block:
    name: ClassVar[str] = "block"
    usage: ClassVar[str] = "/block"
    summary: ClassVar[str] = "Block the event loop."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        time.sleep(3600)
        return ""


@hookimpl
def register_commands() -> Sequence[type[Command]]:
    return [Block]
"""

Settings = Mapping[str, Any]


def install_blocking(packages: Path) -> None:
    """Lay a plugin whose command blocks the event loop where installed packages are."""
    (packages / "blocking.py").write_text(BLOCKING)
    info = packages / "blocking-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: blocking\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exuvia]\nblocking = blocking\n")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if reason := impossible():
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    with booted(tmp_path_factory.mktemp("machine"), install_blocking) as running:
        installed = running.run("/opt/exuvia/bin/exuvia", "service", "install", "--system")
        assert installed.returncode == 0, installed.stderr
        yield running


class Service:
    """The service in the machine, with a free port and the token that the tests know."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._began = time.time()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = machine.root / "var/lib/private/exuvia"

    def configure(self, settings: Settings | None = None, *, unit: str = "") -> None:
        """Set configuration keys, and lines of the unit's section [Service]."""
        wanted = {"gateway.port": self.port, "agent.model": "scripted:echo", **(settings or {})}
        lines = [f"Environment='EXUVIA__{k.upper().replace('.', '__')}={json.dumps(v)}'" for k, v in wanted.items()]
        folder = self.machine.root / "etc/systemd/system/exuvia.service.d"
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text("\n".join(["[Service]", *lines, unit, ""]))
        self.machine.systemctl("daemon-reload")

    def script(self, *replies: Mapping[str, Any]) -> Settings:
        """Configure a model that says these."""
        path = self.machine.root / "srv/script.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        path.chmod(0o644)
        return {"agent.model": "scripted:script", "providers.scripted.script": "/srv/script.jsonl"}

    def start(self) -> None:
        self.machine.systemctl("start", "exuvia")

    def journal(self) -> str:
        """Return the lines of the journal about the service since the beginning of the test."""
        return self.machine.journal(f"--since=@{self._began}")

    def show(self, name: str) -> str:
        return self.machine.show("exuvia", name)

    async def until(self, name: str, value: str) -> None:
        """Wait until a property of the service has this value."""
        async with deadline():
            while await asyncio.to_thread(self.show, name) != value:
                await asyncio.sleep(0.1)

    async def connect(self, http: aiohttp.ClientSession) -> Client:
        """A client of the service, at the first attempt."""
        socket = await http.ws_connect(f"{self.url}/ws", headers={"Authorization": f"Bearer {TOKEN}"}, max_msg_size=0)
        client = Client(socket)
        assert (await client.next())["type"] == "welcome"
        return client


@pytest.fixture
def service(machine: Machine) -> Iterator[Service]:
    """The service, not running, on an empty home."""
    token = machine.root / "etc/credstore/exuvia.token"
    token.parent.mkdir(exist_ok=True)
    token.write_text(TOKEN)
    token.chmod(0o600)
    made = Service(machine)
    made.configure()
    yield made
    machine.run("systemctl", "stop", "exuvia.socket", "exuvia.service")
    machine.run("systemctl", "reset-failed")
    machine.run("sh", "-c", "rm -rf /etc/systemd/system/exuvia.*.d /etc/credstore/* /var/lib/private/exuvia /var/lib/exuvia")


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def ended(client: Client) -> Frame:
    """The event with which a turn ends, which may take long between two frames."""
    async with deadline():
        while True:
            frame: Frame = json.loads((await client.socket.receive()).data)
            if frame["type"] == "event" and frame["event"]["kind"] == "turn_ended":
                event: Frame = frame["event"]
                return event


async def test_the_service_is_started_once_it_listens(service: Service, http: aiohttp.ClientSession) -> None:
    service.start()
    client = await service.connect(http)
    assert await client.chat("hello") == "hello"
    assert service.show("StatusText") == f"Listening on 127.0.0.1:{service.port}."
    assert (service.show("ActiveState"), service.show("NRestarts")) == ("active", "0")


async def test_it_runs_as_a_user_of_its_own_and_sees_little(service: Service, machine: Machine) -> None:
    service.start()
    process = service.show("MainPID")
    status = dict(line.split(":\t", 1) for line in (machine.root / f"proc/{process}/status").read_text().splitlines())
    assert int(status["Uid"].split()[0]) > 60_000
    assert (status["CapEff"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "2")
    inside = machine.root / f"proc/{process}/root"
    assert list((inside / "root").iterdir()) == []
    assert list((inside / "tmp").iterdir()) == []
    assert service.home.stat().st_mode & 0o777 == 0o700
    soft, hard = (machine.root / f"proc/{process}/limits").read_text().split("Max open files")[1].split()[:2]
    assert int(soft) == min(65_536, int(hard))


async def test_memory_the_bundled_model_and_sqlite_vec_work_under_the_confinement(
    service: Service, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    service.configure({"agent.model": "auto", "providers.local.threads": 1})
    service.start()
    client = await service.connect(http)
    await client.send("Say one word.")
    assert (await ended(client))["outcome"] == "replied"
    assert "smollm2" in str(client.frames[0]["model"])
    await client.command("/remember The boat leaves from pier fourteen at dawn.")
    async with deadline():
        while "with vectors by local:" not in await client.command("/status") or "pier fourteen" not in await client.command(
            "/memory from where does the ship sail in the morning"
        ):
            await asyncio.sleep(0.2)
    for file in service.home.glob("memory.sqlite*"):  # as seen from here SQLite would not find its own path
        shutil.copy(file, tmp_path)
    with closing(sqlite3.connect(tmp_path / "memory.sqlite")) as index:
        (sql,) = index.execute("SELECT sql FROM sqlite_master WHERE name LIKE 'vectors_%' AND sql LIKE '%vec0%'").fetchone()
    assert "USING vec0" in sql
    assert "Traceback" not in service.journal()


@pytest.mark.parametrize("level", ["partial", "full"])
def test_commands_are_confined_in_the_service_and_fully_with_the_documented_lines(
    service: Service, machine: Machine, level: str
) -> None:
    (machine.root / "srv").mkdir(exist_ok=True)
    (machine.root / "srv/detect.py").write_text(
        "import asyncio\nfrom plugins.sandbox.detection import detect\nprint(asyncio.run(detect()))\n"
    )
    [documented] = re.findall(r"```ini\n\[Service\]\n(.*?)```", (ROOT / "docs/sandbox.md").read_text(), re.DOTALL)
    program = "Type=oneshot\nExecStart=\nExecStart=/opt/exuvia/bin/python /srv/detect.py"
    service.configure(unit=f"{program}\n{documented if level == 'full' else ''}")
    service.start()
    journal = service.journal()
    assert f"SandboxStatus(level='{level}'" in journal, journal


async def test_what_was_said_is_there_after_a_stop_and_a_kill(service: Service, http: aiohttp.ClientSession) -> None:
    service.start()
    await (await service.connect(http)).chat("before the stop")
    service.machine.systemctl("stop", "exuvia")
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")
    service.start()
    assert await (await service.connect(http)).chat("before the kill") == "before the kill"
    service.machine.systemctl("kill", "--signal=SIGKILL", "exuvia")
    await service.until("NRestarts", "1")
    await service.until("ActiveState", "active")
    client = await service.connect(http)
    await client.say("history", id="h", session="main", limit=100)
    page = await client.until_type("history")
    texts = [event["text"] for event in page["events"] if event["kind"] == "message_received"]
    assert texts == ["before the stop", "before the kill"]


async def test_a_running_turn_may_finish_for_longer_than_the_unit_says(
    service: Service, http: aiohttp.ClientSession
) -> None:
    script = service.script({"text": "slow and whole", "deltas": 10, "delay_ms": 500})
    service.configure({**script, "gateway.stop_within": "60s"}, unit="TimeoutStopSec=2")
    service.start()
    client = await service.connect(http)
    await client.send("take your time")
    await client.until_type("delta")
    stopping = asyncio.create_task(asyncio.to_thread(service.machine.systemctl, "stop", "exuvia"))
    assert (await client.until_event("model_replied"))["text"] == "slow and whole"
    await client.until_event("turn_ended")
    await stopping
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")


async def test_a_turn_that_goes_on_for_too_long_is_resumed_after_the_stop(
    service: Service, http: aiohttp.ClientSession
) -> None:
    script = service.script({"text": "never", "delay_ms": 3_600_000})
    service.configure({**script, "gateway.stop_within": "1s"})
    service.start()
    client = await service.connect(http)
    await client.send("take your time")
    await client.until_event("request_sent")
    await asyncio.to_thread(service.machine.systemctl, "stop", "exuvia")
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")
    service.script({"text": "slow and whole"})
    service.start()
    client = await service.connect(http)
    await client.say("subscribe", session="main", after=0)
    assert (await ended(client))["outcome"] == "replied"


async def test_a_blocked_event_loop_is_killed_and_started_again(service: Service, http: aiohttp.ClientSession) -> None:
    service.configure({"plugins.allow": ["blocking"], "plugins.hold_limit": "0s"}, unit="WatchdogSec=4\nRestartSec=100ms")
    service.start()
    await (await service.connect(http)).send("/block")
    await service.until("NRestarts", "1")
    said = service.journal()
    assert "Watchdog timeout (limit 4s)!" in said
    assert "Fatal Python error: Aborted" in said
    assert 'blocking.py", line' in said


async def test_a_plugin_that_blocks_is_left_out_of_the_next_start_before_systemd_kills(
    service: Service, http: aiohttp.ClientSession
) -> None:
    service.configure({"plugins.allow": ["blocking"]}, unit="WatchdogSec=10\nRestartSec=100ms")
    service.start()
    await (await service.connect(http)).send("/block")
    await service.until("NRestarts", "1")
    await service.until("ActiveState", "active")
    client = await service.connect(http)
    assert await client.chat("well?", session="other") == "well?"
    assert "The plugin 'blocking' blocked the event loop" in await client.command("/status", session="other")
    assert "Watchdog timeout" not in service.journal()


async def test_a_start_that_is_refused_is_not_tried_again(service: Service) -> None:
    service.configure({"sessions.queue_limit": 0})
    refused = service.machine.run("systemctl", "start", "exuvia")
    assert refused.returncode != 0
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("exit-code", "2")
    assert (service.show("ActiveState"), service.show("NRestarts")) == ("failed", "0")
    assert "sessions.queue_limit must be at least 1" in service.journal()


async def test_without_a_credential_it_makes_a_token_of_its_own(service: Service, http: aiohttp.ClientSession) -> None:
    (service.machine.root / "etc/credstore/exuvia.token").unlink()
    service.start()
    with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
        await service.connect(http)
    own = (service.home / "token").read_text().strip()
    async with http.get(f"{service.url}/status.json", headers={"Authorization": f"Bearer {own}"}) as answer:
        assert answer.status == 200


async def test_a_providers_key_comes_as_a_credential_and_stands_in_no_environment(
    service: Service, http: aiohttp.ClientSession
) -> None:
    key = service.machine.root / "etc/credstore/exuvia.openai"
    key.write_text("sk-a-key-for-the-service")
    key.chmod(0o600)
    service.configure(
        {"providers.openai.api_key": "credential:openai"}, unit="LoadCredential=openai:/etc/credstore/exuvia.openai"
    )
    service.start()
    await service.connect(http)
    process = service.show("MainPID")
    assert b"sk-a-key" not in (service.machine.root / f"proc/{process}/environ").read_bytes()
    key.unlink()
    service.machine.systemctl("stop", "exuvia")
    assert service.machine.run("systemctl", "start", "exuvia").returncode != 0


async def test_with_a_socket_the_first_connection_starts_it_and_none_is_refused_while_it_restarts(
    service: Service, http: aiohttp.ClientSession
) -> None:
    units = service.machine.root / "etc/systemd/system"
    shutil.copy(Path(__file__).parents[2] / "systemd/exuvia.socket", units)
    (units / "exuvia.socket.d").mkdir()
    (units / "exuvia.socket.d/test.conf").write_text(f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{service.port}\n")
    service.machine.systemctl("daemon-reload")
    service.machine.systemctl("start", "exuvia.socket")
    assert service.show("ActiveState") == "inactive"
    async with http.get(f"{service.url}/healthz") as answer:
        assert answer.status == 200
    assert service.show("ActiveState") == "active"
    restarting = asyncio.create_task(asyncio.to_thread(service.machine.systemctl, "restart", "exuvia"))
    answered = 0
    while not restarting.done() or answered < 3:
        async with http.get(f"{service.url}/healthz", headers={"Connection": "close"}) as answer:
            answered += answer.status == 200
    await restarting
    assert await (await service.connect(http)).chat("hello") == "hello"
