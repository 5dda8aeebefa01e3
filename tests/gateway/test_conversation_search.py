"""Full-text search over the messages of one's conversations."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.search.message_index import IndexedMessage, MessageIndex
from tests.gateway.gateways import TOKEN, Frame, Gateway, gateway
from tests.gateway.test_conversation_endpoints import get
from tests.gateway.test_deletions import delete
from tests.gateway.test_people import ANA
from tests.waiting import deadline


async def search(running: Gateway, query: str, token: str = TOKEN, **more: str) -> Frame:
    """Return the response to a search, once everything is indexed."""
    async with deadline():
        while True:
            status, body, _ = await get(running, "search", token, q=query, **more)
            found: Frame = json.loads(body)
            assert status == 200, found
            if "pending" not in found:
                return found
            await asyncio.sleep(0.01)


def seen(found: Frame) -> list[tuple[str, str, str]]:
    """Return the hits as key, role and snippet, with what matches in brackets."""
    return [
        (hit["session"], hit["role"], "".join(f"[{text}]" if matched else text for text, matched in hit["snippet"]))
        for hit in found["hits"]
    ]


async def test_messages_and_answers_are_found_by_words_and_their_beginnings_newest_first(tmp_path: Path) -> None:
    script = [{"text": "Crabs walk\nsideways, as every Krebs does."}]
    async with gateway(tmp_path, script=script, settings={"people.ana.token": ANA}) as running:
        client, ana = await running.connect(), await running.connect(ANA)
        await client.chat("How do crabs walk?")
        await client.chat("Und Krebse, wie läuft so ein Krebs?", session="german")
        await client.command("/status crabs", session="german")
        await ana.chat("crabs of Ana")
        walk = ("main", "assistant", "[Crabs] walk sideways, as every Krebs does.")
        assert seen(await search(running, "crab sidew")) == [
            ("german", "assistant", "[Crabs] walk [sideways], as every Krebs does."),
            ("main", "assistant", "[Crabs] walk [sideways], as every Krebs does."),
        ]
        assert seen(await search(running, "CRABS")) == [
            ("german", "assistant", walk[2]),
            walk,
            ("main", "person", "How do [crabs] walk?"),
        ]
        assert [hit[:2] for hit in seen(await search(running, "lauft"))] == [("german", "person")]
        assert [hit[2] for hit in seen(await search(running, "crabs", ANA))][1:] == ["[crabs] of Ana"]
        for nothing in ("", "lobster", '"', "crabs lobster", "owner", "* AND ("):
            assert (await search(running, nothing))["hits"] == []
        hit = (await search(running, "how"))["hits"][0]
        event = next(event for _, event in client.events() if event["kind"] == "message_received")
        assert (hit["seq"], hit["at"], hit["title"]) == (event["seq"], event["at"], "")


async def test_hits_come_in_pages_with_titles_and_marks(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for number in range(3):
            await client.chat(f"crab {number}")
        first = await search(running, "crab", limit="4")
        rest = await search(running, "crab", limit="4", offset="4")
        assert ([len(first["hits"]), first["more"]], [len(rest["hits"]), rest["more"]]) == ([4, True], [2, False])
        assert [text for *_, text in seen(rest)] == ["[crab] 0", "[crab] 0"]
        await client.say("rename", id="r", session="main", title="Animals")
        await client.say("archive", id="a", session="main", archived=True)
        await client.until_type("settings", id="a")
        await client.command("/new")
        await client.chat("a new crab")
        hit = (await search(running, "crab", limit="1"))["hits"][0]
        assert (hit["title"], hit["archived"]) == ("Animals", True)


async def test_what_a_fork_shares_with_its_parent_is_found_once_also_after_the_parent_was_deleted(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.send("crabs walk sideways")
        await client.until_event("turn_ended")
        await client.say("fork", id="f", session="main")
        await client.until_type("forked")
        await client.chat("lobsters too", session="main-fork")
        assert [hit[0] for hit in seen(await search(running, "crabs"))] == ["main", "main"]
        assert [hit[0] for hit in seen(await search(running, "lobsters"))] == ["main-fork"] * 2
        await delete(client)
        assert [hit[0] for hit in seen(await search(running, "crabs"))] == ["main-fork"] * 2
        await delete(client, session="main-fork")
        assert (await search(running, "crabs"))["hits"] == []
        assert b"sideways" not in (tmp_path / "messages.sqlite").read_bytes()


async def test_words_of_scripts_without_spaces_are_found_in_the_middle_of_a_sentence(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("我觉得螃蟹横着走")
        assert [text for *_, text in seen(await search(running, "螃蟹"))] == ["我觉得[螃蟹]横着走"] * 2
        assert seen(await search(running, "蟹螃")) == []


@pytest.mark.parametrize("how", ["damaged", "missing"])
async def test_an_index_that_is_damaged_or_missing_is_built_again(tmp_path: Path, how: str) -> None:
    async with gateway(tmp_path) as running:
        await (await running.connect()).chat("crabs walk")
        assert len((await search(running, "crabs"))["hits"]) == 2
    file = tmp_path / "messages.sqlite"
    if how == "damaged":
        content = bytearray(file.read_bytes())
        content[100:] = b"x" * (len(content) - 100)
        file.write_bytes(content)
    else:
        file.unlink()
    async with gateway(tmp_path) as running:
        await (await running.connect()).chat("more crabs", session="other")
        assert len((await search(running, "crabs"))["hits"]) == 4


def test_messages_of_the_same_millisecond_are_all_kept(tmp_path: Path) -> None:
    index = MessageIndex(tmp_path / "messages.sqlite")
    at = "2026-11-21T03:12:41.603Z"
    said: Any = [IndexedMessage(seq=seq, at=at, role="person", text=f"crab {seq}") for seq in range(1, 6)]
    index.add("one", "owner", 5, said)
    hits = index.find("crab", "owner", 10, 0)
    assert [(hit.seq, hit.at) for hit in hits] == [(seq, at) for seq in (5, 4, 3, 2, 1)]
    assert index.heads() == {"one": 5}
    index.close()
