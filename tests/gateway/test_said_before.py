"""What was said and left the view is recalled with the way back to it, by whom it was said, through a running gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.conversations import journal_news
from sessions.events import ContextCompacted, Recorded, SessionClosed, TurnEnded
from tests.gateway.gateways import Client, Frame, gateway
from tests.stories import AT

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
    """All hits so far."""
    return [hit for _, event in client.events() if event["kind"] == "memory_recalled" for hit in event["hits"]]


async def ask_until_recalled(client: Client) -> Frame:
    async with asyncio.timeout(20):
        while not recalled(client):
            await asyncio.sleep(0.1)
            await client.chat(QUESTION)
    return recalled(client)[0]


async def test_what_a_compaction_took_out_of_the_view_is_recalled_with_the_way_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_news, "SOON", 0.05)
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


async def test_what_was_said_before_new_is_recalled_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_news, "SOON", 0.05)
    async with gateway(tmp_path / "home", settings=SETTINGS | {"agent.context_window": None}) as running:
        client = await running.connect()
        await client.chat(FACT)
        await client.command("/new")
        hit = await ask_until_recalled(client)
        old, _ = running.journals()
        assert (hit["path"], hit["lines"][0]) == (f"sessions/{old}.jsonl", 2)


async def test_the_memory_looks_soon_after_something_left_the_view_and_a_while_after_something_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_news, "SOON", 0.02)
    monkeypatch.setattr(journal_news, "RESTED", 0.1)
    looks: list[float] = []
    loop = asyncio.get_running_loop()
    news = journal_news.JournalNews(lambda: looks.append(loop.time()))
    began = loop.time()

    ended = TurnEnded(outcome="replied", millis=1)
    left = ContextCompacted(compaction=1, keep_from=2, summary="s", by="x", tokens_before=9, tokens_after=1)
    for event in (ended, left, SessionClosed(reason="x")):
        news.read(Recorded(seq=1, at=AT, turn=None, event=event))
    async with asyncio.timeout(5):
        while len(looks) < 2:
            await asyncio.sleep(0.01)
    assert looks[1] - began >= 0.12, "the second when nothing was said for a while"
    await asyncio.sleep(0.2)
    assert len(looks) == 2


async def test_what_the_operator_adds_is_recalled_for_everybody_and_the_notes_for_the_owner_alone(tmp_path: Path) -> None:
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
