"""`exuvia chat` in pipes and on a terminal, against a real gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.token import rotate_token
from gateway.config.keys import load_config
from gateway.support.home import Home
from gateway.terminal.renderer import PROMPT
from tests.gateway.cutting_proxy import CuttingProxy
from tests.gateway.gateways import TOKEN, gateway, replies_wait
from tests.gateway.person import ENVIRONMENT, Terminal, start
from tests.waiting import DEADLINE, deadline


async def chat(url: str, text: str, *options: str, environment: Mapping[str, str] = ENVIRONMENT) -> tuple[int, str, str]:
    """Run `exuvia chat` in a pipe; return its exit code and both outputs."""
    process = await start(url, *options, environment=environment)
    out, complaints = await asyncio.wait_for(process.communicate(text.encode()), DEADLINE)
    assert process.returncode is not None
    return process.returncode, out.decode(), complaints.decode()


def received(journals: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    return [line["text"] for lines in journals.values() for line in lines if line["kind"] == "message_received"]


async def test_once_prints_only_the_answer_to_all_of_the_input(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        assert await chat(g.url, "one\ntwo\n", "--once") == (0, "one\ntwo\n", "")
        assert received(g.journals()) == ["one\ntwo"]


async def test_once_says_why_there_is_no_answer(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"error": "bad_request"}]) as g:
        assert await chat(g.url, "hi", "--once") == (1, "", "exuvia: The script says bad_request.\n")


async def test_once_prints_the_answer_of_the_turn_that_its_message_joined(tmp_path: Path) -> None:
    looking = {"text": "Let me look first.", "delay_ms": 600, "calls": [{"tool": "read", "arguments": {"path": "."}}]}
    settings = {"sessions.queue": "steer"}
    async with gateway(tmp_path, script=[looking, {"text": "All of that."}], settings=settings) as g:
        other = await g.connect()
        await other.send("one")
        await other.until_type("delta")
        async with deadline():
            assert await chat(g.url, "two", "--once") == (0, "All of that.\n", "")


async def test_a_question_is_sent_with_what_is_piped_in(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        assert await chat(g.url, "one\ntwo\n", "Review", "this.") == (0, "Review this.\n\none\ntwo\n", "")
        assert await chat(g.url, "", "Only", "that.") == (0, "Only that.\n", "")
        assert received(g.journals()) == ["Review this.\n\none\ntwo", "Only that."]


async def test_a_question_at_a_terminal_prints_only_the_answer(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, Terminal(80, 24) as terminal:
        process = await terminal.chat(g.url, "What is it?")
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        await terminal.sees("What is it?\n")
        assert terminal.shown.strip() == "What is it?"


async def test_answers_as_json(tmp_path: Path) -> None:
    calls = [{"tool": "read", "arguments": {"path": "."}}]
    script: list[dict[str, Any]] = [{"text": "I look.", "calls": calls}, {"text": "Empty."}, {"error": "bad_request"}]
    async with gateway(tmp_path, script=script) as g:
        code, out, complaints = await chat(g.url, "What is there?\n/whoami\nAnd?\n", "--json")
        (session,) = g.journals()
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, complaints) == (1, "")
    assert [(each["outcome"], each["session"]) for each in answers] == [
        ("replied", "main"),
        ("replied", "main"),
        ("failed", "main"),
    ]
    assert (answers[0]["text"], answers[0]["calls"]) == ("I look.\n\nEmpty.", ["read"])
    assert (answers[0]["model"], answers[0]["session_id"]) == ("scripted:script", session)
    assert answers[0]["usage"]["output"] > 0
    assert answers[2]["error"]["sentence"] == "The script says bad_request."


async def test_once_without_input_sends_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        code, out, complaints = await chat(g.url, " \n", "--once")
        assert (code, out) == (2, "")
        assert "nothing was sent" in complaints
        assert g.journals() == {}


async def test_lines_of_a_pipe_are_sent_one_after_the_other(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        code, out, complaints = await chat(g.url, "one\n\n/whoami\n/nonsense\n/new\ntwo")
        assert (code, complaints) == (1, "")
        assert out.startswith("one\n")
        assert "exuvia chat" in out
        assert out.endswith("\ntwo\n")
        assert received(g.journals()) == ["one", "/whoami", "/nonsense", "/new", "two"]
        first = next(iter(g.journals().values()))
        kinds = [line["kind"] for line in first if line["kind"] in ("message_received", "turn_ended", "command_answered")]
        assert kinds[:4] == ["message_received", "turn_ended", "message_received", "command_answered"]


async def test_an_answer_that_was_cut_and_given_again_is_printed_once_in_a_pipe(tmp_path: Path) -> None:
    script = [{"text": "half of", "error": "stream_cut"}, {"text": "half of it"}]
    async with gateway(tmp_path, script=script) as g:
        assert await chat(g.url, "go", "--once") == (0, "half of it\n", "")


@pytest.mark.parametrize("cut", [2, 4, 7])
async def test_an_answer_is_printed_once_when_the_connection_breaks_meanwhile(tmp_path: Path, cut: int) -> None:
    slow = [{"text": "one two three four", "delay_ms": 60}]
    async with gateway(tmp_path, script=slow) as g, CuttingProxy(g.url, cuts=frozenset({cut})) as proxy:
        assert await chat(proxy.url, "go", "--once") == (0, "one two three four\n", "")
        assert proxy.connections == 2
        assert received(g.journals()) == ["go"]


async def test_no_escape_of_a_model_reaches_the_output(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"text": "\x1b[31mred\x9b0m \u202eback\ttab\nline\r"}]) as g:
        assert await chat(g.url, "go", "--once") == (0, "[31mred0m back\ttab\nline\n", "")


async def test_without_a_gateway_there_is_one_sentence(unused_tcp_port: int) -> None:
    code, out, complaints = await chat(f"127.0.0.1:{unused_tcp_port}", "hi", "--once")
    assert (code, out) == (2, "")
    assert "exuvia run" in complaints
    assert complaints.count("\n") == 1


async def test_address_and_token_are_found_in_the_home(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        assert g.daemon.address is not None
        (tmp_path / "config.toml").write_text(f"[gateway]\nport = {g.daemon.address[1]}\n")
        (tmp_path / "token").write_text(TOKEN + "\n")
        environment = {name: value for name, value in ENVIRONMENT.items() if name != "EXUVIA_TOKEN"}
        command = [sys.executable, "-m", "exuvia", "chat", "--home", str(tmp_path), "--once"]
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(b"found"), DEADLINE)
        assert (process.returncode, out) == (0, b"found\n")


async def test_a_terminal_follows_a_changed_token_of_its_home_but_ends_if_the_token_was_given(tmp_path: Path) -> None:
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "EXUVIA_TOKEN"}
    home, nothing = Home(tmp_path), load_config(None, environment={}, overrides={}).sources
    async with gateway(tmp_path, settings={"gateway.token": None}) as g, Terminal() as found, Terminal() as given:
        going_on = await found.chat(g.url, "--home", str(tmp_path), environment=environment)
        ending = await given.chat(g.url, "--token", home.token.read_text().strip(), environment=environment)
        for terminal in (found, given):
            await terminal.until(PROMPT)
        rotate_token(home, nothing, {})
        await found.until("(connected again)")
        found.types("still here\n")
        await found.until("\nstill here\n")
        await given.until("The gateway's token was changed")
        assert await asyncio.wait_for(ending.wait(), DEADLINE) == 2
        found.types("\x04")
        assert await asyncio.wait_for(going_on.wait(), DEADLINE) == 0


async def test_an_interrupt_in_a_pipe_cancels_the_turn(tmp_path: Path) -> None:
    with replies_wait(0):
        async with gateway(tmp_path, script=[{"text": "one two"}]) as g:
            process = await start(g.url, "--once")
            assert process.stdin is not None
            process.stdin.write(b"go")
            process.stdin.close()
            async with deadline():
                while not any(b"request_sent" in path.read_bytes() for path in (tmp_path / "sessions").glob("*")):
                    await asyncio.sleep(0.01)
                process.send_signal(signal.SIGINT)
                out, complaints = await process.communicate()
            assert (process.returncode, out, complaints) == (1, b"", b"exuvia: (stopped)\n")


async def test_a_person_talks_at_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "notes.md").write_text("a note")
    script: list[Mapping[str, Any]] = [
        {"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "notes.md"}}]},
        {"text": "wro", "error": "stream_cut", "delay_ms": 200},
        {"text": "right", "delay_ms": 200},
        {"text": "slow answer"},
    ]
    async with gateway(tmp_path, script=script, settings={"agent.verbose": True}) as g, Terminal() as terminal:
        process = await terminal.chat(g.url)
        await terminal.until("Ctrl-D leaves.")
        await terminal.until(PROMPT)
        terminal.types("look\n")
        for text in ("Let me look.\n", "⚙ read notes.md · a note · ", "wro", "\n(starting again)\n", "right\n", PROMPT):
            await terminal.until(text)
        with replies_wait():
            terminal.types("again\n")
            await terminal.until("slow")
            terminal.types("/whoami\n")
            await terminal.until("exuvia chat")
            process.send_signal(signal.SIGINT)
            await terminal.until("(stopped)\n")
            await terminal.until(PROMPT)
            process.send_signal(signal.SIGINT)
            await terminal.until("Ctrl-C again")
            terminal.types("\x04")
            assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
            assert received(g.journals()) == ["look", "again", "/whoami"]


async def test_a_terminal_comes_back_after_the_gateway_was_away(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, CuttingProxy(g.url) as proxy, Terminal() as terminal:
        process = await terminal.chat(proxy.url)
        await terminal.until(PROMPT)
        await proxy.stop()
        await terminal.until("reconnecting")
        terminal.types("are you there\n")
        await terminal.until("are you there")
        await proxy.start()
        await terminal.until("(connected again)")
        await terminal.until("\nare you there\n")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        await terminal.until("Ctrl-C again")
        with contextlib.suppress(ProcessLookupError):  # the answer may have ended before the first: then two sufficed
            process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
