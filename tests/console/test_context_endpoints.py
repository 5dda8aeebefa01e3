"""The context of a session over HTTP: sizes and marks of its turns, any request exactly, a compaction's before and after."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.long_session import StrictModel, long_stage
from gateway.conversations.turn import recalling
from gateway.http.console.context_sizes import PARTS, ContextSizes
from gateway.support.stored_sessions import requests_of_turn, transcript_before
from sessions.events.events import UnknownEvent
from sessions.state.view import View
from tests.console.asked import ask
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.long_session import talk
from tests.stored import stored
from tests.waiting import deadline

BOB = "a-token-for-bob-that-is-long-enough"
KEY = "main"


_TALKS: dict[int, tuple[str, bytes]] = {}
"""Talks that were played already, by their turns: the name of the session and its journal."""


async def long_talk(folder: Path, turns: int = 60) -> Path:
    """A session that was pruned, flushed and compacted many times, in the home `folder / "home"`; returns its journal."""
    if turns not in _TALKS:
        stage = long_stage(folder / "made", StrictModel(8_000, seed=5), longest=20_000)
        async with stage.playing():
            await talk(stage, turns)
        _TALKS[turns] = stage.recorder.transcript.session, b"".join(stage.log.written)
    session, lines = _TALKS[turns]
    journal = folder / "home" / "sessions" / f"{session}.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(lines)
    return journal


@asynccontextmanager
async def looked_at(folder: Path, turns: int = 60) -> AsyncIterator[Gateway]:
    await long_talk(folder, turns)
    async with gateway(folder / "home", settings={"people.bob.token": BOB}) as running:
        yield running


async def test_the_parts_of_each_turn_add_up_to_its_estimated_tokens(tmp_path: Path) -> None:
    journal = await long_talk(tmp_path)
    sizes = ContextSizes(stored(journal))
    assert sizes.read(10**9, 60) is False  # the journal ends before that
    assert [size.turn for size in sizes.turns] == list(range(1, 61))
    assert all(sum(size.parts) == size.tokens for size in sizes.turns)
    of_part = dict(zip(PARTS, zip(*(size.parts for size in sizes.turns), strict=True), strict=True))
    assert all(of_part["instructions"])
    assert any(of_part["results"])
    assert not any(of_part["recalled"])
    first = next(mark.turn for mark in sizes.marks if mark.kind == "compacted")
    assert not any(of_part["summary"][: first - 1])
    assert all(of_part["summary"][first:])
    assert {mark.kind for mark in sizes.marks} == {"pruned", "flushed", "compacted"}


async def test_incremental_sums_equal_those_of_the_whole_view_at_every_event(tmp_path: Path) -> None:
    journal = await long_talk(tmp_path, 25)
    sizes = ContextSizes(stored(journal))
    last = len(journal.read_bytes().splitlines())
    for seq in range(1, last + 1):
        assert sizes.read(seq, 60)
        fresh = ContextSizes(stored(journal))
        fresh._update_sums(UnknownEvent(kind="any", line=b""), View(), sizes.transcript.view)
        assert {part: units for part, units in sizes._sums.items() if units.total} == fresh._sums, seq


async def until_read(running: Gateway, path: str) -> Any:
    """Return the sizes once the whole journal was read, which takes several requests on a slow machine."""
    async with deadline():
        while (sizes := (await ask(running, path)).json)["read"] < sizes["head"]:
            pass
    return sizes


async def test_turns_are_returned_in_pages_with_their_marks(tmp_path: Path) -> None:
    async with looked_at(tmp_path) as running:
        (journal,) = running.journals().values()
        newest = await until_read(running, f"/api/context/{KEY}?limit=20")
        earlier = (await ask(running, f"/api/context/{KEY}?limit=50&before=41")).json
    used: dict[int, Counter[str]] = {}
    for event in journal:
        if event["kind"] == "model_replied":
            used.setdefault(event["turn"], Counter({"cached": 0})).update(event["usage"])
    assert (newest["read"], newest["parts"]) == (newest["head"], list(PARTS))
    assert [turn["turn"] for turn in newest["turns"]] == list(range(41, 61))
    assert (newest["earlier"], newest["newest"]) == (True, True)
    assert {mark["turn"] >= 41 for mark in newest["marks"]} == {True}
    assert [turn["turn"] for turn in earlier["turns"]] == list(range(1, 41))
    assert (earlier["earlier"], earlier["newest"]) == (False, False)
    assert {mark["turn"] < 41 for mark in earlier["marks"]} == {True}
    for turn in newest["turns"]:
        assert (turn["window"], turn["outcome"]) == (8000, "replied")
        assert abs(turn["counted"] - turn["tokens"]) < 2000
        assert turn["usage"] == {turn["model"]: used[turn["turn"]]}
    compacted = [mark["compaction"] for mark in newest["marks"] if mark["kind"] == "compacted"]
    assert set(compacted) <= set(newest["in_force"])


async def test_a_turns_exact_requests_have_the_hashes_of_the_journal(tmp_path: Path) -> None:
    async with looked_at(tmp_path) as running:
        marks = (await ask(running, f"/api/context/{KEY}")).json["marks"]
        pruned = [mark["turn"] for mark in marks if mark["kind"] == "pruned"]
        path = f"/api/context/{KEY}/turns/{pruned[-1]}"
        turn = (await ask(running, path)).json
        first = (await ask(running, f"{path}?call=1")).json
        given = await ask(running, f"{path}/request.json?call={turn['shown']}")
        edited = next(row for row in turn["rows"] if "edit" in row)
        whole = (await ask(running, f"{path}/messages/{edited['index']}")).json["text"]
        missing = await ask(running, "/api/context/main/turns/61")
        too_far = await ask(running, f"{path}/messages/9999")
    assert all(call["agrees"] for call in turn["calls"])
    assert turn["shown"] == len(turn["calls"])
    assert first["shown"] == 1
    assert hashlib.sha256(given.body).hexdigest() == turn["calls"][-1]["sha256"]
    assert "attachment" in given.headers["Content-Disposition"]
    assert turn["rows"][0]["who"] == "summary"
    assert turn["calls"][-1]["messages"] == len(turn["rows"])
    assert edited["edit"]["how"] in ("trim", "clear")
    assert edited["size"] > edited["chars"] == len(whole)
    assert edited["text"] == whole[:600]
    assert (missing.status, too_far.status) == (404, 404)
    assert missing.json == {"code": "not_found", "message": "This turn made no request."}


async def test_a_compaction_has_the_replaced_messages_the_summary_and_its_state(tmp_path: Path) -> None:
    async with looked_at(tmp_path) as running:
        page = (await ask(running, f"/api/context/{KEY}")).json
        number = page["in_force"][-1]
        made = (await ask(running, f"/api/context/{KEY}/compactions/{number}")).json
        client = await running.connect()
        answered = await client.command(f"/revert {number}")
        after = (await ask(running, f"/api/context/{KEY}/compactions/{number}")).json
        again = (await ask(running, f"/api/context/{KEY}")).json
        missing = await ask(running, f"/api/context/{KEY}/compactions/9999")
    entry = made["entry"]
    assert entry["in_force"]
    assert entry["number"] == number
    assert made["left"] == len(made["rows"]) > 2
    assert made["rows"][0]["who"] == "summary"
    assert "## Goals" in entry["summary"]
    assert made["flush"].startswith("written to memory/")
    assert "Reverted compaction" in answered
    assert not after["entry"]["in_force"]
    assert number not in again["in_force"]
    assert again["marks"][-1]["kind"] == "reverted"
    assert missing.status == 404


async def test_recalled_passages_are_a_part_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalling, "WITHIN", 30.0)  # a busy machine changes nothing
    async with gateway(tmp_path, settings={"memory.embedding.provider": "none"}) as running:
        client = await running.connect()
        await client.chat("Good evening")
        await client.command("/remember my preferred language is Rust")
        await client.chat("What is my favourite language?")
        page = (await ask(running, f"/api/context/{KEY}")).json
        turn = (await ask(running, f"/api/context/{KEY}/turns/2")).json
    recalled = page["parts"].index("recalled")
    assert [turn["parts"][recalled] > 0 for turn in page["turns"]] == [False, True]
    assert [row["who"] for row in turn["rows"]] == ["user", "assistant", "user", "recalled"]


async def test_the_previous_session_is_named_and_can_be_requested(tmp_path: Path) -> None:
    async with looked_at(tmp_path, 3) as running:
        client = await running.connect()
        await client.command("/new")
        await client.chat("Good evening")
        now = (await ask(running, f"/api/context/{KEY}")).json
        before = (await ask(running, f"/api/context/{KEY}?session={now['before']}")).json
    assert len(now["turns"]) == 1
    assert (before["session"], before["before"], len(before["turns"])) == (now["before"], None, 3)


async def test_other_peoples_sessions_are_not_found(tmp_path: Path) -> None:
    async with looked_at(tmp_path, 3) as running:
        session = (await ask(running, f"/api/context/{KEY}")).json["session"]
        answers = [
            await ask(running, path, token=BOB)
            for path in (
                f"/api/context/{KEY}",
                f"/api/context/{KEY}?session={session}",
                f"/api/context/{KEY}/turns/1?session={session}",
                f"/api/context/{KEY}/turns/1/request.json?session={session}",
            )
        ]
        unauthenticated = await ask(running, f"/api/context/{KEY}", token="x" * 30)
        other_key = await ask(running, f"/api/context/other?session={session}")
    assert [each.status for each in answers] == [404] * 4
    assert (unauthenticated.status, other_key.status) == (401, 404)


async def test_a_long_journal_is_read_in_slices_with_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.console.context_endpoints.SLICE", 0.0)
    seen: list[Any] = []
    async with looked_at(tmp_path, 2) as running:
        while not seen or seen[-1]["read"] < seen[-1]["head"]:
            seen.append((await ask(running, f"/api/context/{KEY}")).json)
    assert len(seen) == seen[-1]["head"]  # one event each time
    assert [each["read"] for each in seen] == list(range(1, len(seen) + 1))


async def test_a_turn_rebuilt_from_a_checkpoint_equals_one_rebuilt_from_the_beginning(tmp_path: Path) -> None:
    journal = await long_talk(tmp_path, 25)
    sizes = ContextSizes(stored(journal))
    sizes.read(10**9, 60)
    for turn in range(1, 26):
        begin = sizes.before(turn=turn)
        assert turn - 5 < begin.turn < turn or begin.turn == 0
        near, far = requests_of_turn(stored(journal), turn, begin), requests_of_turn(stored(journal), turn)
        assert [(each.seq, transcript.view) for each, transcript in near] == [(each.seq, t.view) for each, t in far]
    for cut in sizes.transcript.cuts:
        begin = sizes.before(seq=cut.seq)
        assert begin.head < cut.seq
        assert transcript_before(stored(journal), cut.seq, begin) == transcript_before(stored(journal), cut.seq)


async def test_a_damaged_journal_is_an_error(tmp_path: Path) -> None:
    async with looked_at(tmp_path, 3) as running:
        await ask(running, f"/api/context/{KEY}")
    journal = next((tmp_path / "home" / "sessions").glob("*.jsonl"))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], lines[5].replace(b"a", b"b", 1), *lines[6:]]))
    async with gateway(tmp_path / "home") as running:
        sizes = await ask(running, f"/api/context/{KEY}")
        turn = await ask(running, f"/api/context/{KEY}/turns/2")
    assert {sizes.status, turn.status} == {409}
    assert sizes.json["code"] == "damaged_session"
    assert journal.name in sizes.json["message"]
