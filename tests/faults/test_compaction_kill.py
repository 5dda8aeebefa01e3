"""Kill -9 in the middle of a compaction and of a revert: the next start closes the cycle, the turn is answered, and the
day's note has each section once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.long_session import notes, summary
from plugins.policies.languages.prompts import language
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.faults.gateway_process import GatewayProcess, gateway_process, journals, verify
from tests.gateway.gateways import Client
from tests.gateway.long_session import assert_one_flush_before_each_compaction
from tests.waiting import until

WORDS = "one two three four five six seven eight nine ten " * 50


def purpose(body: Json) -> str:
    """Return the purpose of a request, by its instructions."""
    told = body["messages"][0]["content"]
    english = language("en")
    return (
        "flush"
        if told.startswith(english.flush.system)
        else "summary"
        if told.startswith(english.summary.system)
        else "answer"
    )


class Condenser(OpenAIServer):
    """Answers, and stays silent to one purpose."""

    def __init__(self) -> None:
        super().__init__(respond=self._said)
        self.silent_to = ""

    def _said(self, body: Json) -> ScriptedResponse | Fault:
        asked, text = purpose(body), body["messages"][-1]["content"]
        if asked == self.silent_to:
            return Fault(end="hang")
        return ScriptedResponse({"flush": notes, "summary": summary}[asked](text) if asked != "answer" else "yes")

    def was_asked(self, what: str) -> bool:
        return any(purpose(body) == what for body in self.requests)


def settings(server: OpenAIServer) -> dict[str, str]:
    given: dict[str, Any] = {
        "AGENT__MODEL": "openai:fake",
        "AGENT__CONTEXT_WINDOW": 8_000,
        "PROVIDERS__OPENAI__BASE_URL": server.url,
        "PROVIDERS__OPENAI__API_KEY": KEY,
    }
    return {f"EXUVIA__{name}": json.dumps(value) for name, value in given.items()}


def lines(home: Path) -> list[Json]:
    return [line for journal in journals(home) for line in journal]


def told(home: Path, kind: str) -> list[Json]:
    return [line for line in lines(home) if line["kind"] == kind]


async def chat_until(client: Client, condition: Callable[[], bool]) -> None:
    """Chat until something is so, also in the middle of a turn."""
    for number in range(40):
        await client.send(f"{number} about CRAB-{number}: {WORDS}")
        ended = asyncio.create_task(client.until_event("turn_ended"))
        met = asyncio.create_task(until(condition))
        await asyncio.wait([ended, met], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        met.cancel()
        if condition():
            return
    raise AssertionError("it never came to that")


async def resumed(home: Path, server: OpenAIServer) -> None:
    """The next run: all is answered and compacted, and the log and the notes are whole."""
    async with gateway_process(home, settings=settings(server)) as gateway, aiohttp.ClientSession() as http:
        await until(lambda: len(told(home, "turn_ended")) == len(told(home, "turn_started")))
        client = await gateway.connect(http)
        count = len(told(home, "context_compacted"))
        await chat_until(client, lambda: len(told(home, "context_compacted")) > count)
        await until(lambda: len(told(home, "turn_ended")) == len(told(home, "turn_started")))
        assert await gateway.stop() == 0
    assert await verify(home) == 0
    assert {line["outcome"] for line in told(home, "turn_ended")} == {"replied"}
    assert_each_section_stands_once(home)
    assert_one_flush_before_each_compaction(lines(home))


def assert_each_section_stands_once(home: Path) -> None:
    """Assert that each flushed section is in the day's note exactly once."""
    note = "".join(path.read_text() for path in (home / "workspace" / "memory").glob("*.md"))
    digests = {line["digest"] for line in told(home, "memory_flushed") if line["outcome"] == "written"}
    assert digests
    assert [note.count(f"<!-- exuvia {digest} -->") for digest in digests] == [1] * len(digests)
    marks = [line for line in note.splitlines() if line.startswith("<!-- exuvia ")]
    assert len(set(marks)) == len(marks)


# Failure 7: the guard is `close_cycle`.
@pytest.mark.parametrize("moment", ["flush", "summary"])
async def test_a_compaction_killed_during_its_request_is_completed_after_the_start(tmp_path: Path, moment: str) -> None:
    async with Condenser().serving() as server:
        server.silent_to = moment
        async with gateway_process(tmp_path, settings=settings(server)) as gateway, aiohttp.ClientSession() as http:
            client = await gateway.connect(http)
            await chat_until(client, lambda: server.was_asked(moment))
            await gateway.kill()
        assert told(tmp_path, "context_compacted") == []
        server.silent_to = ""
        await resumed(tmp_path, server)
    if moment == "summary":
        (first, *_) = told(tmp_path, "compaction_abandoned")
        assert first["reason"] == "The gateway was stopped during the compaction."
        assert "failed" not in first


@pytest.mark.parametrize("kind", ["memory_flushed", "context_compacted", "note_appended"])
async def test_a_kill_after_any_event_of_a_compaction_neither_loses_nor_duplicates_a_section(
    tmp_path: Path, kind: str
) -> None:
    async with Condenser().serving() as server:
        async with gateway_process(tmp_path, settings=settings(server)) as gateway, aiohttp.ClientSession() as http:
            client = await gateway.connect(http)
            await chat_until(client, lambda: bool(told(tmp_path, kind)))
            await gateway.kill()
        await resumed(tmp_path, server)


@pytest.mark.parametrize("wait", [False, True])
async def test_a_revert_killed_at_any_step_is_complete_or_absent_and_the_session_continues(
    tmp_path: Path, wait: bool
) -> None:
    async with Condenser().serving() as server:
        async with gateway_process(tmp_path, settings=settings(server)) as gateway, aiohttp.ClientSession() as http:
            client = await gateway.connect(http)
            await client.chat(f"About CRAB-1: {WORDS}")
            await client.chat(f"About CRAB-2: {WORDS}")
            await client.command("/compact")
            await reverted(gateway, client, tmp_path if wait else None)
        await resumed(tmp_path, server)
    # A command that was cut off is answered at the next start, once.
    assert len(told(tmp_path, "compaction_reverted")) == 1
    answered = [line["answers"] for line in told(tmp_path, "command_answered")]
    assert len(set(answered)) == len(answered) == 2


async def reverted(gateway: GatewayProcess, client: Client, home: Path | None) -> None:
    """Ask for it, and kill once it is accepted, or, where the home is named, once it stands in the log."""
    id_ = await client.send("/revert 1")
    await client.until_type("accepted", id=id_)
    if home is not None:
        await until(lambda: bool(told(home, "compaction_reverted")))
    await gateway.kill()
