"""`/status` in words, the list of problems, and `exuvia status`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.ports import free_port
from gateway.cli import status as status_command
from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.models.breaker import BreakerView
from gateway.status.overview import Overview, Storage, describe_overview, is_well
from gateway.status.problems import Problems
from gateway.support import instance_address
from gateway.support.errors import ConfigRefused, GatewayError
from gateway.support.home import Home
from gateway.support.session_status import SessionStatus, context_used, describe, span
from gateway.terminal.client import local_gateway
from gateway.terminal.client.local_gateway import RequestFailed, TokenMissing
from plugins.testing.contexts import ManualClock
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.events import Failure
from sessions.events.messages import Usage
from sessions.files.journal_folder import JournalFolder
from tests.gateway.gateways import TOKEN, gateway

ROOT = Path(__file__).parents[2]

STATUS = SessionStatus(
    version="1.0",
    uptime=3700,
    model="a:b, because",
    answers="a:b",
    key="main",
    session="20261121-120000-aaaaaa",
    age=90,
    turns=1,
    events=1100,
    usage=Usage(input=12000, output=300, cached=4000),
    context=2500,
    window=10000,
    waiting=1,
    queue_limit=20,
    mode="collect",
    running=True,
    last_error=None,
)


def test_status_of_a_healthy_session_is_short() -> None:
    assert describe(STATUS) == (
        "**Exuvia 1.0**, up 1 h 1 min, all is well\n"
        "- Model: a:b, because\n"
        "- Tokens: 12,000 in (4,000 cached), 300 out\n"
        "- Context: 2,500 of 10,000 tokens (25 %)\n"
        "- 🧹 Compactions: 0\n"
        "- Last flush: none yet\n"
        "- Session: `main` (20261121-120000-aaaaaa), 1 min 30 s old, 1 turn, 1,100 events\n"
        "- Queue: collect, 1 waiting of 20, a turn is running"
    )


def test_status_after_compactions_includes_pending_notes() -> None:
    flush = "written to memory/2026-11-21.md, 5 min ago"
    done = describe(msgspec.structs.replace(STATUS, compactions=3, flush=flush, noted="memory/2026-11-21.md"))
    assert "- 🧹 Compactions: 3\n- Last flush: written to memory/2026-11-21.md, 5 min ago\n- Summary task: done\n" in done
    none = describe(msgspec.structs.replace(STATUS, compactions=3))
    assert "- Summary task: none, since the last summary goes into no note\n" in none
    back = describe(msgspec.structs.replace(STATUS, compactions=3, taken_back=2))
    assert "- 🧹 Compactions: 3, 2 reverted\n" in back
    running = describe(msgspec.structs.replace(STATUS, notes_owed=1))
    assert "- Summary task: running (1 section to write)\n" in running
    stuck = describe(msgspec.structs.replace(STATUS, notes_owed=2, notes_trouble="The disk is full."))
    assert "- Summary task: The disk is full. (2 sections to write)\n" in stuck


def test_status_lists_problems_at_the_end() -> None:
    status = msgspec.structs.replace(
        STATUS,
        last_error=Failure(code="rate_limited", sentence="Too many requests."),
        troubles=["The disk is full."],
        refused=["The plugin x was refused."],
        notes=["A restart is due."],
    )
    lines = describe(status).splitlines()
    assert lines[0] == "**Exuvia 1.0**, up 1 h 1 min"
    assert lines[-4:] == [
        "- The last turn failed: Too many requests. (rate_limited)",
        "- Trouble: The disk is full.",
        "- Plugin: The plugin x was refused.",
        "- Configuration: A restart is due.",
    ]


@pytest.mark.parametrize(
    ("context", "window", "words"),
    [
        (None, 1000, "unknown of 1,000 tokens"),
        (None, None, "unknown tokens; the window is unknown"),
        (10, None, "10 tokens; the window is unknown"),
    ],
)
def test_status_names_unknown_values(context: int | None, window: int | None, words: str) -> None:
    assert context_used(context, window) == words


def test_status_says_how_to_set_an_unknown_window() -> None:
    text = describe(msgspec.structs.replace(STATUS, window=None))
    assert text.count("window") == 2
    assert text.splitlines()[3] == (
        "- Context: 2,500 tokens; the window is unknown; set it in config.toml under [agent]:"
        ' `context_windows = { "a:b" = 128000 }`'
    )
    assert "say it" not in describe(STATUS)
    assert "say it" not in describe(msgspec.structs.replace(STATUS, window=None, answers=None))


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (90061, "1 d 1 h"), (-5, "0 s")])
def test_durations_have_their_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


async def test_status_shows_the_last_error_until_a_successful_turn_and_recent_failures(
    tmp_path: Path,
) -> None:
    script = [{"error": "credentials_refused"}, {"text": "It works again."}]
    async with gateway(tmp_path / "home", script=script) as on:
        client = await on.connect()
        await client.send("hello")
        await client.until_event("turn_ended")
        answer = await client.command("/status")
        assert "(credentials_refused)" in answer
        assert "all is well" not in answer
        await client.chat("hello again")
        for session in ("main", "other"):
            answer = await client.command("/status", session=session)
            assert "(credentials_refused)" in answer
            assert "The last turn failed" not in answer
            assert "- Trouble: 1 of 2 turns failed within the last 10 min" in answer
            assert "all is well" not in answer


@pytest.mark.parametrize(
    ("enabled", "says"),
    [(True, "- Summary task: done"), (False, "- Summary task: none, since the last summary goes into no")],
)
async def test_status_shows_the_result_of_the_summary_task(enabled: bool, says: str, tmp_path: Path) -> None:
    settings = {"compaction.memory_flush.enabled": enabled}
    async with gateway(tmp_path / "home", settings=settings) as on:
        client = await on.connect()
        for number in range(4):
            await client.chat(f"Message {number}: " + "green tea is what the guests drink. " * 40)
        assert "Compact Complete" in await client.command("/compact")
        if enabled:
            await client.until_event("note_appended")
        status = await client.command("/status")
        assert says in status
        assert ("- Last flush: none, since it is switched off" in status) != enabled


# --- trouble ----------------------------------------------------------------------------------------------------------


class Patient:
    """The objects from which problems are read."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.figures = Counters()
        self.catalog = SqliteCatalog(folder / "catalog.sqlite", JournalFolder(folder))
        self.lag = LoopLag(self.figures.lag_seconds)
        self.breakers: dict[str, BreakerView] = {}
        self.troubles = Problems(self.catalog, self.figures, self.lag, lambda: self.breakers, clock=self.clock.monotonic)


def test_a_healthy_gateway_has_no_problems(tmp_path: Path) -> None:
    assert Patient(tmp_path).troubles.sentences() == []


def test_a_full_disk_is_reported_for_a_while(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.figures.storage_failed = 0.0, "It could not be written: no space left."
    patient.clock.move(70)
    assert patient.troubles.sentences() == [
        "A write to the disk failed 1 min 10 s ago (It could not be written: no space left). Accepted messages are safe;"
        " send the others again. Check the free space."
    ]
    patient.clock.move(3600)
    assert patient.troubles.sentences() == []


def test_an_unwritable_catalog_and_unreadable_journals_are_reported(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.catalog.failure = "The catalog cannot be written: disk I/O error."
    patient.catalog.unreadable = {"a": "no rights", "b": "no rights"}
    catalog, journals = patient.troubles.sentences()
    assert catalog.startswith("The catalog cannot be written: disk I/O error. Nothing is lost")
    assert journals == (
        "2 journals are damaged, missing or unreadable, and no longer written; `/new` starts a new session."
        " `exuvia sessions verify` lists them with the reasons."
    )


def test_a_failing_provider_is_reported_with_the_reason(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.breakers = {
        "openai": BreakerView(state="open", failures=5, wait=41.5, why="No connection."),
        "gemini": BreakerView(state="half_open", failures=6, wait=0, why="No answer in time."),
        "ollama": BreakerView(state="closed", failures=3, wait=0, why="No connection."),
        "anthropic": BreakerView(state="closed", failures=2, wait=0, why="No connection."),
        "local": BreakerView(state="closed", failures=0, wait=0, why=""),
    }
    assert patient.troubles.sentences() == [
        "openai failed 5 times in a row and is tried again in 41 s: No connection.",
        "gemini failed 6 times in a row and is being tried again: No answer in time.",
        "ollama failed 3 times in a row: No connection.",
    ]


def test_recently_failed_turns_are_reported(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    assert patient.troubles.sentences() == []
    patient.figures.ended.append((0.0, "credentials_refused"))
    patient.clock.move(60)
    [sentence] = patient.troubles.sentences()
    assert sentence.startswith("1 of 1 turn failed within the last 10 min (credentials_refused): ")
    assert "`/status`" in sentence
    assert "`exuvia doctor`" in sentence
    patient.figures.ended.append((60.0, ""))
    patient.figures.ended.append((60.0, "unreachable"))
    patient.figures.ended.append((60.0, "unreachable"))
    [sentence] = patient.troubles.sentences()
    assert sentence.startswith("3 of 4 turns failed within the last 10 min (unreachable, credentials_refused): ")
    patient.clock.move(3600)
    [sentence] = patient.troubles.sentences()
    assert sentence.startswith("The last turn failed 1 h ago (unreachable): ")
    patient.figures.ended.append((3660.0, ""))
    assert patient.troubles.sentences() == []


def test_many_open_descriptors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "most_descriptors", lambda: 4)
    [sentence] = Patient(tmp_path).troubles.sentences()
    assert " of 4 file descriptors are open; raise the limit" in sentence


def test_figures_that_the_system_does_not_provide_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_DESCRIPTORS", (Path("/no/such/folder"),))
    monkeypatch.setattr(process, "_STATM", Path("/no/such/file"))
    assert process.descriptors() is None
    assert process.memory() > 10_000_000


# --- exuvia status ----------------------------------------------------------------------------------------------------

OVERVIEW = Overview(
    version="1.0",
    process=42,
    since="2026-11-21T09:30:00.000Z",
    uptime=3700,
    home="/home/ana/.exuvia",
    model="a:b, because",
    refuses=None,
    troubles=[],
    sessions=12,
    conversations=3,
    websockets=1,
    running_turns=1,
    waiting_messages=0,
    turns={"replied": 1100, "silent": 0, "failed": 5},
    errors={"unreachable": 2, "rate_limited": 3},
    input_tokens=1_200_000,
    output_tokens=34_000,
    storage=Storage(pending=0, syncs=2400, sync_seconds=0.0021, failures=1),
    memory=64 * 2**20,
    descriptors=21,
)


def test_the_overview_is_a_short_table() -> None:
    assert describe_overview(OVERVIEW, "http://127.0.0.1:7117") == (
        "Exuvia 1.0, running since 2026-11-21 09:30 UTC (1 h 1 min).\n"
        "  Address   http://127.0.0.1:7117\n"
        "  Home      /home/ana/.exuvia\n"
        "  Model     a:b, because\n"
        "  Sessions  12, 3 in memory; 1 client connected\n"
        "  Turns     1,105 ended (1,100 replied, 5 failed); 1 running, 0 waiting\n"
        "  Errors    rate_limited 3, unreachable 2\n"
        "  Tokens    1,200,000 in, 34,000 out\n"
        "  Storage   2,400 syncs of 2.1 ms, 1 failure, 0 bytes pending\n"
        "  Process   42, 64 MB, 21 open files\n"
        "No problems."
    )


def test_the_overview_fits_a_terminal() -> None:
    why = "openai:gpt-5, because agent.model is auto and OPENAI_API_KEY is set; /model or agent.model changes it"
    long = msgspec.structs.replace(OVERVIEW, model=why, troubles=["The disk is full, and the moon is too."] * 3)
    lines = describe_overview(long, "x").splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3:5] == [
        "  Model     openai:gpt-5, because agent.model is auto and OPENAI_API_KEY is set;",
        "            /model or agent.model changes it",
    ]


def test_the_overview_ends_with_the_problems() -> None:
    ill = msgspec.structs.replace(OVERVIEW, refuses="The storage failed.", troubles=["The disk is full."])
    assert describe_overview(ill, "x").splitlines()[-2:] == [
        "! The gateway is not accepting messages: The storage failed.",
        "! The disk is full.",
    ]
    assert is_well(OVERVIEW)
    assert not is_well(ill)
    assert not is_well(msgspec.structs.replace(OVERVIEW, troubles=["The disk is full."]))


async def asked(home: Path, url: str | None, *, token: str | None = TOKEN, as_json: bool = False) -> tuple[int, str]:
    """Return the exit code and the output of `exuvia status`."""
    out = io.StringIO()
    ask = status_command.status
    code = await asyncio.to_thread(ask, Home(home), {}, out, url=url, token=token, as_json=as_json)
    return code, out.getvalue()


async def test_a_running_gateway_reports_its_status(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as on:
        client = await on.connect()
        await client.chat("hello")
        url = on.url.replace("http:", "ws:") + "/ws"
        code, words = await asked(tmp_path / "home", url)
        assert code == 0
        assert "  Model     scripted:echo, because" in words
        assert "  Turns     1 ended (1 replied); 0 running, 0 waiting\n" in words
        assert words.endswith("No problems.\n")
        code, text = await asked(tmp_path / "home", url, as_json=True)
        told = json.loads(text)
        assert (code, told["running"], told["address"], told["process"]) == (0, True, on.url, os.getpid())
        assert (told["turns"]["replied"], told["errors"], told["refuses"], told["websockets"]) == (1, {}, None, 1)


async def test_a_problem_sets_the_exit_code(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as on:
        on.daemon.context.counters.storage_failed = time.perf_counter(), "no space left"
        code, words = await asked(tmp_path / "home", on.url)
        assert code == 1
        assert "! A write to the disk failed" in words
        client = await on.connect()
        assert "- Trouble: A write to the disk failed" in await client.command("/status")


async def test_a_failed_turn_is_a_problem(tmp_path: Path) -> None:
    script = [{"error": "credentials_refused"}, {"text": "It works again."}]
    async with gateway(tmp_path / "home", script=script) as on:
        client = await on.connect()
        await client.send("hello")
        await client.until_event("turn_ended")
        code, words = await asked(tmp_path / "home", on.url)
        assert code == 1
        assert "No problems" not in words
        assert "! 1 of 1 turn failed within the last 10 min (credentials_refused)" in words
        await client.chat("hello again")
        assert "! 1 of 2 turns failed" in (await asked(tmp_path / "home", on.url))[1]


async def test_a_wrong_token_is_an_error_with_the_gateways_sentence(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as on:
        with pytest.raises(RequestFailed, match=r"refuses: .*token"):
            await asked(tmp_path / "home", on.url, token="not-this-one-but-long-enough")


async def test_without_a_running_gateway_status_says_how_to_start_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    code, words = await asked(home.root, None, token=None)
    assert (code, words) == (1, f"No gateway has ever run on {home.root}; `exuvia run` starts one.\n")
    assert not home.root.exists(), "asking makes nothing"

    url = f"ws://127.0.0.1:{free_port()}/ws"
    address = url.replace("ws:", "http:").removesuffix("/ws")
    code, words = await asked(home.root, url)
    assert (code, words) == (1, f"No gateway runs at {address}; `exuvia run` starts one.\n")
    code, text = await asked(home.root, url, as_json=True)
    assert (code, json.loads(text)) == (1, {"running": False, "reason": words.strip()})

    home.make()
    home.lock.write_text(f"{os.getpid()}\n")
    assert f"process {os.getpid()}, which used {home.root} last, is running" in (await asked(home.root, url))[1]
    home.lock.write_text("4194305\n")  # above the highest number that a process can have
    assert "`exuvia run` starts one" in (await asked(home.root, url))[1]
    with pytest.raises(TokenMissing):
        await asked(home.root, None, token=None)


@contextlib.asynccontextmanager
async def answering(answer: Callable[[], bytes | None]) -> AsyncIterator[str]:
    """Listen as something that is no gateway; an answer of None never comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if (data := answer()) is None:
            await reader.read()
        else:
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not a gateway"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nno\x1b[31m", "refuses: no"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "refuses: 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is not a gateway of this version"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n", "is not a gateway of this version"),
    ],
)
async def test_another_server_is_not_taken_for_a_gateway(tmp_path: Path, data: bytes, says: str) -> None:
    async with answering(lambda: data) as url:
        with pytest.raises(GatewayError, match=says) as refused:
            await asked(tmp_path, url)
    assert "\x1b" not in str(refused.value)


async def test_a_hanging_gateway_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_command, "PATIENCE", 0.1)
    async with answering(lambda: None) as url:
        code, words = await asked(tmp_path, url)
    assert code == 1
    assert words == f"The gateway at {url} did not respond within 0 seconds: it hangs, or is unreachable.\n"


# --- where it listens -------------------------------------------------------------------------------------------------


async def test_a_gateway_on_another_port_is_found(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:  # on a port that no configuration names
        assert (tmp_path / "address").stat().st_mode & 0o777 == 0o600
        code, words = await asked(tmp_path, None)
        assert (code, on.url in words) == (0, True)
    assert not (tmp_path / "address").exists()


@pytest.mark.parametrize(
    "left",
    [
        '{"host": "192.0.2.1", "port": 7, "process": 4194305}',  # of a process that cannot be
        '{"host": "192.0.2.1", "port": 7}',
        '{"host": "192.0.2.1", "port": 7, "process": 99999999999999999999999}',
        "",
        "x" * 10_000,
    ],
)
def test_the_address_of_a_killed_gateway_is_ignored(tmp_path: Path, left: str) -> None:
    (tmp_path / "address").write_text(left)
    door = local_gateway.find_gateway(Home(tmp_path), {"EXUVIA_PORT": "7200"}, url=None, token=TOKEN)
    assert door.url == "ws://127.0.0.1:7200/ws"


def test_after_a_kill_status_says_where_the_last_gateway_listened(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "exuvia", "run", "--home", str(tmp_path), "--port", "0"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EXUVIA_")}
    with subprocess.Popen(program, cwd=ROOT, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        while not (tmp_path / "address").exists():
            assert killed.poll() is None
            time.sleep(0.02)
        killed.kill()
    last = json.loads((tmp_path / "address").read_text())
    configured = {"EXUVIA_PORT": str(free_port())}
    out = io.StringIO()
    assert status_command.status(Home(tmp_path), configured, out, url=None, token=None, as_json=False) == 1
    assert out.getvalue().startswith(
        f"No gateway runs on {tmp_path}: the last one listened at http://127.0.0.1:{last['port']} and was killed"
    )
    assert configured["EXUVIA_PORT"] not in out.getvalue()


async def test_another_homes_gateway_at_the_configured_address_is_not_taken_for_the_killed_one(tmp_path: Path) -> None:
    async with gateway(tmp_path / "other") as other:
        (tmp_path / "address").write_text('{"host": "127.0.0.1", "port": 7, "process": 4194305}')
        (tmp_path / "config.toml").write_text(f"[gateway]\nport = {other.url.rpartition(':')[2]}\n")
        code, words = await asked(tmp_path, None, token="not-this-one-but-long-enough")
        assert (code, "the last one listened at http://127.0.0.1:7 and" in words) == (1, True)


@pytest.mark.parametrize(
    "fault",
    ["x = [\n", '[gateway]\nport = "many"\n', '[agent]\nmodle = "x"\n', '[providers.openai]\napi_key = "env:NOT_SET"\n'],
)
async def test_a_running_gateway_is_found_despite_an_invalid_configuration(fault: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"gateway.token": None}) as on:
        (tmp_path / "config.toml").write_text(fault)
        code, words = await asked(tmp_path, None, token=None)
        assert (code, on.url in words) == (0, True)


def test_a_token_is_taken_from_a_configuration_with_faults_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'[gateway]\ntoken = "{TOKEN}"\nport = "many"\n[agent]\nmodle = 3\n')
    with instance_address.publish(tmp_path / "address", "127.0.0.1", 7201):
        door = local_gateway.find_gateway(Home(tmp_path), {}, url=None, token=None)
    assert (door.url, door.token) == ("ws://127.0.0.1:7201/ws", TOKEN)
    with pytest.raises(ConfigRefused, match=r"gateway\.port"):
        local_gateway.find_gateway(Home(tmp_path), {}, url=None, token=None)


def test_without_a_running_gateway_an_unreadable_configuration_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("x = [\n")
    with pytest.raises(ConfigRefused, match="line 2"):
        local_gateway.find_gateway(Home(tmp_path), {}, url=None, token=TOKEN)
    with pytest.raises(TokenMissing, match=r"line 2, .* And there is no token in "):
        local_gateway.find_gateway(Home(tmp_path), {}, url="127.0.0.1:7200", token=None)


def test_the_address_of_a_gateway_on_all_addresses_is_loopback(tmp_path: Path) -> None:
    for host, url in (("0.0.0.0", "ws://127.0.0.1:7201/ws"), ("::", "ws://[::1]:7201/ws"), ("::1", "ws://[::1]:7201/ws")):
        with instance_address.publish(tmp_path / "address", host, 7201):
            assert local_gateway.find_gateway(Home(tmp_path), {"EXUVIA_PORT": "7200"}, url=None, token=TOKEN).url == url


def test_a_gateway_serves_if_its_address_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "address").mkdir()
    (tmp_path / "address" / "somebody's").touch()
    with instance_address.publish(tmp_path / "address", "127.0.0.1", 7201):
        assert instance_address.running_instance(tmp_path / "address") is None
