"""Failures that users of other gateways have met, tried on a running gateway: memory that grows, a blocked loop, a context
of 565 %, a session reset overnight. The numbers are those of the list of known failures."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stage import Model, Stage, says
from plugins.api.compaction import CompactionInput
from plugins.policies import extract
from plugins.testing.servers.faulty_server import Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.gateway.gateways import Client, gateway
from tests.waiting import until

SMALL = {"agent.context_window": 8_000, "compaction.summarizer": "extract"}
LINE = "The crab sheds its shell in spring, and nobody sees it. "
LONG = LINE.replace(" ", "-") * 145
"""8,000 characters that come in one piece."""


IMPORTED_LATER = "plugins.memory.search.search"
"""A module that a gateway imports in the background after its start, with some megabytes of others."""


async def grown_by(client: Client, turns: int) -> int:
    """Return the bytes of memory that some turns leave behind, each with a message of 8,000 characters."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for turn in range(turns):
        await client.chat(f"{turn} {LONG}")
        client.frames.clear()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return after - before


async def test_a_long_session_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    """Failure 13. The guards are `RECENT`, the bytes of the log that a recorder keeps, and the view, from which a compaction
    removes messages."""
    alone: dict[str, Any] = {"compaction.memory_flush.enabled": False, "memory.sources": ["notes"]}
    alone |= {"memory.recall.mode": "off", "memory.facts.auto_extract": False}
    async with gateway(tmp_path, settings=SMALL | alone) as g:  # what words are known in memory is bounded apart
        client = await g.connect()
        await client.chat("hi")
        await until(lambda: IMPORTED_LATER in sys.modules)
        tracemalloc.start()
        try:
            await grown_by(client, 20)
            more = await grown_by(client, 25)
        finally:
            tracemalloc.stop()
    (journal,) = (tmp_path / "sessions").iterdir()
    assert journal.stat().st_size > 600_000
    assert more < 150_000


async def test_while_a_long_conversation_is_summarised_another_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures 7 and 14. The guard is the thread that makes an extract; no lock is held meanwhile."""
    began, go_on, summarised = threading.Event(), threading.Event(), extract.build_extract

    def slowly(leaving: CompactionInput) -> str:
        began.set()
        assert go_on.wait(30)
        return summarised(leaving)

    monkeypatch.setattr(extract, "build_extract", slowly)
    async with gateway(tmp_path, settings=SMALL) as g:
        long, other = await g.connect(), await g.connect()
        await chat_until(long, began)
        assert await other.chat("hi", session="other") == "hi"
        waiting = await long.send("still there?")
        assert (await long.until_answered(waiting))["type"] == "accepted"
        go_on.set()
        await long.until(lambda frame: frame["type"] == "event" and frame["event"].get("text") == "still there?")
        await long.until(lambda frame: frame["type"] == "event" and frame["event"].get("text") == "still there?")


async def chat_until(client: Client, began: threading.Event) -> None:
    """Chat until something has begun in the middle of a turn."""
    while True:
        await client.send(LONG)
        ended = asyncio.create_task(client.until_event("turn_ended"))
        while not (ended.done() or began.is_set()):
            await asyncio.sleep(0.001)
        if began.is_set():
            ended.cancel()
            return


@pytest.mark.parametrize("counts", [None, 0, 1])
async def test_a_context_is_what_the_next_request_holds_whatever_was_spent_and_however_a_provider_counts(
    counts: int | None, tmp_path: Path
) -> None:
    """Failure 18. The guards are `CountedRequest`, which describes one request and no sum, and `_is_plausible`, for servers
    that report 0 or 1."""

    def look(body: Json) -> ScriptedResponse:
        """Read the same note twelve times, then answer."""
        looked = sum(message["role"] == "tool" for message in body["messages"])
        return (
            ScriptedResponse("", ("read", '{"path":"note.md"}'), counts=counts)
            if looked < 12
            else ScriptedResponse("Well.", counts=counts)
        )

    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "note.md").write_text(LINE * 50)
    async with OpenAIServer(respond=look).serving() as server:
        settings = {
            "agent.model": "openai:fake",
            "agent.context_window": 200_000,
            "providers.openai.base_url": server.url,
            "providers.openai.api_key": KEY,
        }
        async with gateway(tmp_path, settings=settings) as g:
            client = await g.connect()
            assert "Context: unknown of 200,000 tokens" in await client.command("/status")
            await client.chat("Look twelve times.")
            used = await context(client)
        async with gateway(tmp_path, settings=settings) as g:
            again = await context(await g.connect())
        held = len(json.dumps(server.requests[-1]["messages"])) // 4
    assert again == used
    assert 0.6 * held < used < 1.7 * held


async def context(client: Client) -> int:
    """Return the tokens that `/status` shows, and whether its percentage matches."""
    status = await client.command("/status")
    found = re.search(r"Context: ([\d,]+) of 200,000 tokens \((\d+) %\)", status)
    assert found, status
    tokens = int(found[1].replace(",", ""))
    assert int(found[2]) == round(tokens / 2_000)
    return tokens


async def test_a_session_that_nobody_wrote_to_for_a_month_goes_on_where_it_was() -> None:
    """Failure 24. Only `/new` opens another session; no time and no number of turns does."""
    model = Model(says("So it is."))
    on = Stage(model)
    async with on.playing():
        for number in range(3):
            await on.say(f"Remember CRAB-{number}.", f"m{number}")
            on.clock.move(30 * 24 * 3600)
    assert [message.text for message in model.requests[-1].context.messages[::2]] == [
        f"Remember CRAB-{number}." for number in range(3)
    ]
    assert on.kinds.count("session_opened") == 1
