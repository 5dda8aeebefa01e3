"""The benchmarks work: each runs once, at its smallest. What they measure is not judged here."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from benchmarks import compacting, long, memory_month, pruning
from benchmarks.__main__ import BENCHMARKS, code
from benchmarks.client import Client, TurnFailed
from benchmarks.figures import figure, percentile_95, table
from benchmarks.fitted import Fitted, figures_of, fitted
from benchmarks.journals import EVENTS_A_TURN, write_journal
from benchmarks.model_server import STREAM
from benchmarks.ports import free_port
from benchmarks.process import ROOT, cpu_seconds, file_system, resident_mb, serving
from benchmarks.pruning import busy
from benchmarks.pruning_picture import COLOURS, FITTED_COLOURS, picture
from benchmarks.setting import Setting
from benchmarks.websocket_client import ConnectionClosed
from sessions.events.codec import FIRST, verify
from sessions.state.reducer import project
from tests.servers.postgres_server import postgres_server

SAID = ('{"type":"welcome"}', '{"type":"accepted","id":"s-1"}', '{"type":"delta","text":"%s"}' % ("x" * 70_000))
REPLIED = '{"type":"event","event":{"seq":5,"turn":1,"kind":"turn_ended","outcome":"replied","millis":1}}'
FAILED = '{"type":"event","event":{"seq":5,"turn":1,"kind":"turn_ended","outcome":"failed","millis":1}}'

Serve = Callable[..., Awaitable[int]]


def recorded_session(turns: int) -> list[dict[str, Any]]:
    """Lines as an agent records them: a question, a call with a result of 4,000 characters, an answer."""

    def line(turn: int, role: str, content: object, **more: object) -> dict[str, Any]:
        at = datetime(2026, 11, 21, 12, 0, tzinfo=UTC) + timedelta(seconds=turn)
        return {"type": "message", "timestamp": at.isoformat(), "message": {"role": role, "content": content, **more}}

    lines = []
    for turn in range(turns):
        call = {"type": "toolCall", "id": f"c{turn}", "name": "read", "arguments": {"path": f"file{turn}.py"}}
        lines += [
            line(turn, "user", f"What of CRAB-{turn}?"),
            line(turn, "assistant", [call]),
            line(turn, "toolResult", f"CRAB-{turn} is open. " * 180, toolCallId=f"c{turn}"),
            line(turn, "assistant", [{"type": "text", "text": "It is open."}]),
        ]
    return lines


@pytest.fixture
def serve(aiohttp_server: AiohttpServer) -> Serve:
    """Start a websocket server that answers a message with the given frames, and give its port."""

    async def start(*frames: str, status: int = 101) -> int:
        async def enter(request: web.Request) -> web.StreamResponse:
            if status != 101:
                return web.Response(status=status, text="Invalid token.")
            door = web.WebSocketResponse(compress=False)
            await door.prepare(request)
            await door.send_str(frames[0])
            assert (await door.receive_json())["type"] == "send"
            for frame in frames[1:]:
                await door.send_str(frame)
            await door.receive()
            return door

        app = web.Application()
        app.router.add_get("/ws", enter)
        port = (await aiohttp_server(app, shutdown_timeout=0.1)).port
        assert port
        return port

    return start


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in ("memory-month", "cluster")])
def test_each_benchmark_runs_at_its_smallest(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = tmp_path_factory.mktemp("data") / "session.jsonl"
    recorded.write_text("".join(json.dumps(line) + "\n" for line in recorded_session(12)))
    monkeypatch.setattr(pruning, "DATA", recorded)
    monkeypatch.setattr(compacting, "WINDOWS", (8_000, 32_000))
    if name in ("appending", "many-sessions"):
        monkeypatch.setenv("DATABASE_URL", postgres_server().database())
    tiny = Setting(
        folder=tmp_path,
        turns=12,
        window=2,
        runs=1,
        sessions=3,
        each=2,
        journals=3,
        events=50,
        many_sessions=200,
        conversations=0,
        notes=9,
        chunks=1000,
        commands=1,
        skills=5,
        schedules=20,
        import_megabytes=1,
        occurrences=500,
        transcript=60,
        pieces=25,
    )
    figures = BENCHMARKS[name](tiny)
    assert {each.benchmark for each in figures} == {name}
    assert all(each.runs >= 1 for each in figures)
    assert list(tmp_path.iterdir()) == []


def test_a_month_shows_the_evidence_of_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a conversation of its own: the data set is not in the repository."""
    texts = ["Where is the kettle?", "It is blue.", "My sister plays the lute.", "How nice!"]
    turns = [
        {"id": str(number), "session": number // 2, "speaker": "Ann" if number % 2 == 0 else "Ben", "text": text}
        for number, text in enumerate(texts)
    ]
    told = {"id": "made up", "turns": turns, "questions": [{"question": "Who plays the lute?", "relevant": ["2"]}]}
    (tmp_path / "conversations.json").write_text(json.dumps({"conversations": [told]}))
    monkeypatch.setattr(memory_month, "CONVERSATIONS", tmp_path / "conversations.json")
    figures = memory_month.run(Setting(folder=tmp_path, conversations=1))
    assert {each.benchmark for each in figures} == {"memory-month"}
    assert [each.median for each in figures[:2]] == [100.0, 100.0]
    assert [each.name for each in tmp_path.iterdir()] == ["conversations.json"]


def test_the_long_session_says_which_promise_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy(long.TimedModel):
        """Counts far more than anybody would have thought."""

        def __init__(self, window: int) -> None:
            super().__init__(window)
            self.factor = 8.0

    monkeypatch.setattr(long, "TimedModel", Greedy)
    figures = long.run(Setting(folder=tmp_path, turns=8))
    broken = [each for each in figures if not each.holds]
    assert broken[0].measure == "8 turns at 8,000: largest request"
    assert "largest request: **broken** |" in table(broken)
    assert code(broken) == 1
    assert code([each for each in figures if each.holds]) == 0


def test_the_command_line_prints_one_table_and_names_the_machine(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "opening", "--events", "20", "--runs", "1", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first, _, head, _, *rows = done.stdout.splitlines()
    assert first.startswith("Python ")
    assert file_system(tmp_path) in first
    assert head == "| benchmark | measure | median | p95 | runs | against | ratio |"
    assert [row.split(" | ")[0] for row in rows] == ["| opening"] * 4


def test_an_unknown_benchmark_is_refused_with_its_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no benchmark speed" in done.stderr


def test_the_fake_model_streams_its_answer_and_keeps_the_last_body_whatever_the_pieces() -> None:
    body = b"{" + b"x" * 400_000 + b"}"
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with serving("model_server") as (_, port), socket.create_connection(("127.0.0.1", port), 5) as connection:
        for piece in (request[:30], request[30:90], request[90:300_000], request[300_000:] + request):
            connection.sendall(piece)
        answers = connection.makefile("rb")
        for _ in range(2):
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            while answers.readline() != b"\r\n":
                pass
            assert answers.read(len(b"".join(STREAM))) == b"".join(STREAM)
        connection.sendall(b"GET /last HTTP/1.1\r\nHost: m\r\n\r\n")
        assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
        assert answers.readline() == b"Content-Length: %d\r\n" % len(body)
        assert answers.readline() == b"\r\n"
        assert answers.read(len(body)) == body
        answers.close()


async def test_the_client_says_when_each_part_of_a_turn_came(serve: Serve) -> None:
    client = await Client.open(await serve(*SAID, REPLIED), "token", "s")
    times = await client.turn()
    client.close()
    assert 0 < times.accepted <= times.first_delta <= times.ended
    assert times.received == sum(map(len, (*SAID[1:], REPLIED)))


@pytest.mark.parametrize(
    "frames",
    [
        (*SAID, FAILED),
        (SAID[0], SAID[1], REPLIED),
        (SAID[0], SAID[2], REPLIED),
        (SAID[0], '{"type":"error","code":"busy","message":"too many wait"}'),
    ],
    ids=["failed", "no delta", "not accepted", "error"],
)
async def test_a_turn_that_is_not_answered_as_it_should_is_not_measured(serve: Serve, frames: tuple[str, ...]) -> None:
    client = await Client.open(await serve(*frames), "token", "s")
    with pytest.raises(TurnFailed):
        await client.turn()
    client.close()


async def test_a_refused_connection_says_why(serve: Serve) -> None:
    with pytest.raises(ConnectionClosed, match=r"401(?s:.*)Invalid token"):
        await Client.open(await serve(status=401), "token", "s")


def test_a_journal_that_was_made_is_one_that_the_gateway_could_have_written(tmp_path: Path) -> None:
    end = write_journal(tmp_path, "s", key="main", turns=3)
    lines = (tmp_path / "s.jsonl").read_bytes().splitlines(keepends=True)
    digest = FIRST
    for seq, line in enumerate(lines, 1):
        digest = verify(line, digest, seq)
    transcript = project(lines)
    assert (end.seq, end.offset, end.sum) == (2 + 3 * EVENTS_A_TURN, sum(map(len, lines)), digest)
    assert transcript.settled
    assert len(transcript.messages) == 6


def test_the_table_holds_median_and_95th_percentile_and_ratio() -> None:
    samples = [float(n) for n in range(1, 101)]
    rows = [
        figure("start", "ready", "s", samples, against="bar", reference=101.0),
        figure("start", "once", "ms", [0.1234]),
    ]
    assert table(rows).splitlines()[2:] == [
        "| start | ready | 50.5 s | 95.0 | 100 | bar 101 | 0.50 |",
        "| start | once | 0.12 ms |  | 1 |  |  |",
    ]


async def test_the_picture_of_pruning_is_whole_and_has_a_line_for_each_mode_and_each_way_to_fit_a_window() -> None:
    sessions = {mode: await busy(mode, 12, window=20_000) for mode in COLOURS}
    fits = [Fitted(what=what, window=window, session=sessions["always"]) for what, window in FITTED_COLOURS]
    root = ElementTree.fromstring(picture(sessions, fits))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    drawn = [*sessions.values(), *(each.session for each in fits)]
    assert [len(line.attrib["points"].split()) for line in lines] == [len(each.sent) for each in drawn]
    assert sessions["always"].edits


async def test_a_recorded_session_is_pruned_and_compacted_to_fit_each_window() -> None:
    """The agent's own compactions are ignored; each request fits, and the extract replaces the removed messages."""
    fits = await fitted([*recorded_session(60), {"type": "compaction", "firstKeptEntryIndex": 0, "summary": "No."}])
    found = {(each.what, each.window): each for each in fits}
    alone, compacted = fits[0].session.sent, found["compacted", 32_000]
    assert max(each.tokens for each in alone) > 32_000
    assert compacted.compactions > 1
    for what in ("compacted", "pruned and compacted"):
        assert max(each.tokens for each in found[what, 32_000].session.sent) < 24_000
    assert [each.tokens for each in found["compacted", 200_000].session.sent] == [each.tokens for each in alone]
    assert {each.benchmark for each in figures_of(compacted)} == {"pruning"}


def test_of_few_samples_the_95th_percentile_is_the_largest() -> None:
    assert percentile_95([3.0, 1.0, 2.0]) == 3.0


def test_what_a_process_uses_is_read_for_all_its_threads_and_children() -> None:
    script = (
        "import subprocess, sys, time\n"
        "kept = bytearray(b'x' * 30_000_000)\n"
        "child = subprocess.Popen([sys.executable, '-c', \"kept = b'x' * 30_000_000; print(flush=True); input()\"],\n"
        "    stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "while time.process_time() < 0.1: pass\n"
        "print(flush=True); input(); child.communicate(b'\\n')\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert resident_mb(process.pid) > 60
        assert 0.08 <= cpu_seconds(process.pid) < 5
        process.communicate(b"\n")


def test_a_free_port_is_given_to_nobody_else_and_taken_again_and_again() -> None:
    port = free_port()
    for _ in range(2):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port)).close()
