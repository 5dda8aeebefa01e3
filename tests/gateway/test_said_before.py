"""Messages that have left the view are recalled with a reference to their place and their author, through a running
gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.notes import workspace_memory
from plugins.memory.sources import transcripts
from plugins.memory.sources.transcripts import IDLE_SECONDS
from sessions.events.events import ContextCompacted, Recorded, SessionClosed, TurnEnded
from tests.gateway.gateways import Client, Frame, gateway
from tests.stories import AT
from tests.waiting import VirtualTime, deadline

FACT = "The spare key of the boathouse hangs behind the blue barometer, number KX-7741."
QUESTION = "Where does the spare key of the boathouse hang?"
BO = "bos-token-for-tests-that-is-long-enough"

SETTINGS = {
    "agent.context_window": 4000,
    "memory.embedding.provider": "none",
    "memory.sources": ["sessions"],
    "compaction.memory_flush.enabled": False,
    "people.bo.token": BO,
}


def recalled(client: Client) -> list[Frame]:
    """Return all hits so far."""
    return [hit for _, event in client.events() if event["kind"] == "memory_recalled" for hit in event["hits"]]


async def ask_until_recalled(client: Client) -> Frame:
    async with deadline():
        while not recalled(client):
            await asyncio.sleep(0.1)
            await client.chat(QUESTION)
    return recalled(client)[0]


async def test_messages_removed_by_a_compaction_are_recalled_with_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_memory, "SOON", 0.05)
    async with gateway(tmp_path / "home", settings=SETTINGS) as running:
        client = await running.connect()
        await client.chat(FACT)
        await client.chat(QUESTION)
        while not any(event["kind"] == "context_compacted" for _, event in client.events()):
            await client.chat("It rained again and we postponed the sailing course. " * 40)
        assert recalled(client) == [], "so far it was before the model's eyes"

        hit = await ask_until_recalled(client)
        session, said = next(iter(running.journals().items()))
        assert hit["path"] == f"sessions/{session}.jsonl"
        first, last = hit["lines"]
        assert FACT in "".join(event.get("text", "") for event in said if first <= event["seq"] <= last)
        assert f"owner: {FACT}" in hit["text"]

        stranger = await running.connect(BO)
        await stranger.chat("Something else, so that there is a session.")
        await stranger.chat(QUESTION)
        assert recalled(stranger) == []


async def test_messages_before_new_are_recalled_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_memory, "SOON", 0.05)
    async with gateway(tmp_path / "home", settings=SETTINGS | {"agent.context_window": None}) as running:
        client = await running.connect()
        await client.chat(FACT)
        await client.command("/new")
        hit = await ask_until_recalled(client)
        old, _ = running.journals()
        assert (hit["path"], hit["lines"][0]) == (f"sessions/{old}.jsonl", 2)


NOTE = "The spare key of the boathouse hangs behind the blue barometer.\n"
NOTES_TOO = SETTINGS | {"agent.context_window": None, "memory.sources": ["notes", "sessions"]}


def keep(home: Path, path: str, text: str) -> None:
    """Write a note before the gateway starts."""
    (home / "workspace" / "memory").mkdir(parents=True)
    (home / "workspace" / path).write_text(text)


async def test_a_question_that_nobody_answered_is_not_found_when_it_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_memory, "SOON", 0.05)
    keep(tmp_path / "home", "memory/keys.md", NOTE)
    story = [{"error": "bad_request"}, {"text": "Behind the barometer."}]
    async with gateway(tmp_path / "home", script=story, settings=NOTES_TOO) as running:
        client = await running.connect()
        await client.send(QUESTION)
        assert (await client.until_event("turn_ended"))["outcome"] == "failed"
        await client.chat("A heron nests there.")
        await client.command("/new")
        async with deadline():
            while "sessions/" not in await client.command("/memory heron"):
                await asyncio.sleep(0.05)
        found = await client.command(f"/memory {QUESTION}")
        assert "memory/keys.md" in found
        assert "sessions/" not in found
        await client.send(QUESTION)  # the script's error comes once in each session
        await client.until_event("turn_ended")
        assert await client.chat(QUESTION) == "Behind the barometer."
        assert {hit["path"] for hit in recalled(client)} == {"memory/keys.md"}


async def test_the_message_that_is_being_answered_is_not_found_by_the_models_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "NEW_BYTES", 1)  # a journal is read again after each event
    keep(tmp_path / "home", "memory/keys.md", NOTE)
    search: dict[str, Any] = {"tool": "memory_search", "arguments": {"query": "the spare key of the boathouse"}}
    story: list[dict[str, Any]] = [
        {"calls": [search]},
        {"text": "Behind the barometer."},
        {"calls": [search]},
        {"text": "As I said."},
    ]
    async with gateway(tmp_path / "home", script=story, settings=NOTES_TOO) as running:
        client = await running.connect()
        for _ in range(2):
            await client.send(QUESTION)
            await client.until_event("turn_ended")
        first, second = (json.loads(event["output"]) for _, event in client.events() if event["kind"] == "tool_returned")
    assert {result["citation"].partition("#")[0] for result in first["results"]} == {"memory/keys.md"}
    (said,) = [result["text"] for result in second["results"] if result["citation"].startswith("sessions/")]
    assert said == f"owner: {QUESTION}\nassistant: Behind the barometer."


async def test_indexing_starts_soon_after_messages_leave_the_view_and_later_after_a_turn() -> None:
    looks: list[float] = []
    with VirtualTime():
        loop = asyncio.get_running_loop()
        news = workspace_memory.IndexTrigger(lambda: looks.append(loop.time()))
        began = loop.time()

        ended = TurnEnded(outcome="replied", millis=1)
        left = ContextCompacted(compaction=1, keep_from=2, summary="s", by="x", tokens_before=9, tokens_after=1)
        for event in (ended, left, SessionClosed(reason="x")):
            news.on_event(Recorded(seq=1, at=AT, turn=None, event=event))
        await asyncio.sleep(10 * IDLE_SECONDS)
    rested = workspace_memory.SOON + IDLE_SECONDS
    assert [look - began for look in looks] == pytest.approx([workspace_memory.SOON, rested])


async def test_extra_files_are_recalled_for_everybody_and_the_notes_for_the_owner_only(tmp_path: Path) -> None:
    handbook, notes = tmp_path / "handbook", tmp_path / "home" / "workspace" / "memory"
    for folder in (handbook, notes):
        folder.mkdir(parents=True)
    (handbook / "house.md").write_text(FACT + "\n")
    (notes / "keys.md").write_text("Where the spare key of the boathouse hangs is nobody's business.\n")
    both = {"memory.sources": ["notes", "sessions"], "memory.extra_paths": [str(handbook)]}
    async with gateway(tmp_path / "home", settings=SETTINGS | both) as running:
        stranger = await running.connect(BO)
        assert (await ask_until_recalled(stranger))["path"] == str(handbook / "house.md")
        assert {hit["path"] for hit in recalled(stranger)} == {str(handbook / "house.md")}
        owner = await running.connect()
        await owner.chat(QUESTION)
        assert "memory/keys.md" in {hit["path"] for hit in recalled(owner)}
