"""Facts are extracted from turns in the background: once each, from any output of a model, through a running gateway and its
restarts."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.memory.facts_commands import import_facts
from gateway.cli.options import Invocation
from gateway.cli.sessions.session_changes import fork_session
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.facts.fact_requests import FactRequests
from gateway.support.home import Home
from plugins.api.plugin_services import ModelAnswer
from tests.gateway.gateways import Gateway, gateway, replies_wait
from tests.waiting import deadline, until

BY_WORDS = {"memory.embedding.provider": "none", "memory.recall.mode": "off", "memory.facts.quiet_seconds": 0.05}
SAID = "My favourite language is Rust, remember the port 3000."


def answer(*contents: str, **more: Any) -> dict[str, Any]:
    """Return a line of a script: facts in a model's format."""
    rows = [{"content": each, "type": "preference", "importance": 0.8, "tags": [], **more} for each in contents]
    return {"purpose": "extraction", "text": json.dumps({"facts": rows}, ensure_ascii=False)}


def distilled(*contents: str, **more: Any) -> dict[str, Any]:
    return {**answer(*contents, **more), "purpose": "distillation"}


def events(on: Gateway) -> list[dict[str, Any]]:
    path = on.home / "facts.jsonl"
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []


def of_kind(on: Gateway, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(on) if event["kind"] == kind]


@asynccontextmanager
async def scripted(folder: Path, *lines: Mapping[str, Any], **settings: Any) -> AsyncIterator[Gateway]:
    async with gateway(folder, script=lines, settings={**BY_WORDS, **settings}) as on:
        yield on


@pytest.fixture
def processed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the sessions whose new turns were processed."""
    sessions: list[str] = []
    process = FactExtraction._process

    async def counted(self: FactExtraction, session: str) -> bool:
        done = await process(self, session)
        sessions.append(session)
        return done

    monkeypatch.setattr(FactExtraction, "_process", counted)
    return sessions


async def test_a_turn_becomes_a_fact_with_its_origin_and_its_cost(tmp_path: Path) -> None:
    async with scripted(tmp_path, {"text": "Noted."}, answer("Ann's favourite language is Rust")) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
        (event,) = of_kind(on, "facts_extracted")
        (entry,) = event["entries"]
        why = await client.command(f"/why {entry['id'][:8]}")
        usage = await client.command("/usage")
    (session,) = on.journals()
    assert (event["session"], event["ordinal"]) == (session, 1)
    assert (entry["content"], entry["owner"]) == ("Ann's favourite language is Rust", "owner")
    assert "layer" not in entry  # the daily log
    assert SAID in why
    assert "Extracted from turn 1." in why
    assert "| extraction | `scripted:script` |" in usage


async def test_every_turn_is_processed_once_also_after_a_restart(tmp_path: Path) -> None:
    async with scripted(tmp_path, {"text": "One."}, answer("Fact one")) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
    async with scripted(tmp_path, {"text": "One."}, {"text": "Two."}, answer("Fact two")) as on:
        client = await on.connect()
        await client.chat("The second thing is that tea is green.")
        await until(lambda: len(of_kind(on, "facts_extracted")) == 2)
    assert [event["ordinal"] for event in of_kind(on, "facts_extracted")] == [1, 2]
    assert [entry["content"] for event in of_kind(on, "facts_extracted") for entry in event["entries"]] == [
        "Fact one",
        "Fact two",
    ]


async def test_turns_left_by_the_last_process_are_processed_at_the_start(tmp_path: Path) -> None:
    async with scripted(tmp_path, {"text": "Noted."}, **{"memory.facts.quiet_seconds": 600}) as on:
        client = await on.connect()
        await client.chat(SAID)
    assert of_kind(on, "facts_extracted") == []
    async with scripted(tmp_path, {"text": "Noted."}, answer("Late fact")) as on:
        await until(lambda: of_kind(on, "facts_extracted"))
    assert of_kind(on, "facts_extracted")[0]["entries"][0]["content"] == "Late fact"


async def test_a_greeting_asks_no_model_and_is_marked(tmp_path: Path) -> None:
    async with scripted(tmp_path, {"text": "Hello!"}) as on:
        client = await on.connect()
        await client.chat("Good morning!")
        await until(lambda: of_kind(on, "facts_extracted"))
    assert "entries" not in of_kind(on, "facts_extracted")[0]


@pytest.mark.parametrize("said", ["I see nothing.", '{"facts": [{"content": "half', ""])
async def test_an_answer_that_is_not_json_is_recorded_and_the_turn_is_not_retried(tmp_path: Path, said: str) -> None:
    async with scripted(tmp_path, {"text": "Noted."}, {"purpose": "extraction", "text": said}) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
        status = await client.command("/status")
    (event,) = of_kind(on, "facts_extracted")
    assert event["failed"] == "The answer was not the requested JSON."
    assert "will be retried" not in status


async def test_a_failing_provider_is_paused_and_reported(tmp_path: Path) -> None:
    async with scripted(tmp_path, {"text": "Noted."}, {"purpose": "extraction", "error": "unreachable"}) as on:
        client = await on.connect()
        await client.chat(SAID)
        async with deadline():
            while "will be retried" not in (status := await client.command("/status")):
                await asyncio.sleep(0.05)
    assert "could not be searched for facts" in status or "could not extract facts" in status
    assert of_kind(on, "facts_extracted") == []


async def test_no_facts_are_extracted_if_that_is_switched_off(tmp_path: Path, processed: list[str]) -> None:
    async with scripted(tmp_path, {"text": "Noted."}, {"text": "Fine."}, **{"memory.facts.auto_extract": False}) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: processed)
        assert await client.chat("And the next answer is the script's second?") == "Fine."
    assert events(on) == []


async def test_new_facts_are_distilled_and_a_changed_preference_keeps_its_history(tmp_path: Path) -> None:
    lines = [{"text": "Noted."}, answer("Ann's favourite language is Java")]
    lines += [answer("Ann's favourite language is Rust now, no longer Java")]
    lines += [distilled("Ann's favourite language is Java", importance=0.9)]
    lines += [distilled("Ann's favourite language is Rust now, not Java any more", importance=0.9, supersedes=[1])]
    async with scripted(tmp_path, *lines, **{"memory.facts.distill_threshold": 1, "memory.recall.mode": "keywords"}) as on:
        client = await on.connect()
        await client.chat("My favourite language is Java.")
        await until(lambda: len(of_kind(on, "facts_distilled")) == 1)
        await client.chat("By the way, I program in Rust now.")
        await until(lambda: len(of_kind(on, "facts_distilled")) == 2)
        (first,) = of_kind(on, "facts_distilled")[0]["entries"]
        why = await client.command(f"/why {first['id'][:8]}")
        (second,) = of_kind(on, "facts_distilled")[1]["entries"]
        await client.command("/new")
        await client.chat("What is my favourite language?")
    (daily,) = of_kind(on, "facts_extracted")[0]["entries"]
    assert [old["id"] for old in of_kind(on, "facts_distilled")[1]["superseded"]] == [first["id"], daily["id"]]
    recalled = [line for lines in on.journals().values() for line in lines if line["kind"] == "memory_recalled"]
    assert next(hit["digest"] for hit in recalled[-1]["hits"] if hit["path"] == "facts.jsonl") == second["id"]
    assert f"Superseded by `{second['id'][:8]}`; its importance was lowered to 0.45." in why


async def test_the_distill_command_reports_the_counts(tmp_path: Path) -> None:
    lines = [{"text": "Noted."}, answer("Tea is green", "Coffee is black"), distilled("Tea is green and coffee black")]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
        assert await client.command("/distill") == "Distilled 2 new facts into 1 long-term fact."
        assert await client.command("/distill") == "The daily log has no new facts."


async def test_an_unreadable_answer_to_a_distillation_loses_nothing(tmp_path: Path) -> None:
    lines = [{"text": "Noted."}, answer("Tea is green", "Coffee is black")]
    lines += [{"purpose": "distillation", "text": "I merged them for you."}]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
        assert await client.command("/distill") == "Distilled 2 new facts into 2 long-term facts."
    (event,) = of_kind(on, "facts_distilled")
    assert sorted(entry["content"] for entry in event["entries"]) == ["Coffee is black", "Tea is green"]


async def test_a_model_records_a_fact_with_its_tool(tmp_path: Path) -> None:
    call = {"tool": "write_memory", "arguments": {"content": "The staging server listens on 3000", "type": "fact"}}
    bad = {"tool": "write_memory", "arguments": {"content": "x", "type": "opinion"}}
    lines: list[dict[str, Any]] = [{"text": "", "calls": [call, bad]}, {"text": "Kept."}, answer()]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        await client.send("Keep where the staging server listens.")
        await client.until_event("turn_ended")
    (written,) = of_kind(on, "facts_written")
    assert written["entries"][0]["content"] == "The staging server listens on 3000"
    assert (written["by"], written["entries"][0]["owner"]) == ("model", "owner")
    returned = [line for lines in on.journals().values() for line in lines if line["kind"] == "tool_returned"]
    assert [line["outcome"] for line in returned] == ["returned", "failed"]


async def test_in_chinese_the_model_is_asked_in_chinese_and_finds_chinese_facts(tmp_path: Path) -> None:
    lines = [{"text": "好的。"}, answer("用户最喜欢的语言是Rust"), {"text": "是Rust。"}]
    chinese = {"agent.language": "zh", "memory.recall.mode": "keywords"}
    async with scripted(tmp_path, *lines, **chinese) as on:
        client = await on.connect()
        await client.chat("我最喜欢的语言是Rust。")
        await until(lambda: of_kind(on, "facts_extracted"))
        await client.command("/new")
        await client.chat("我最喜欢的语言是什么？")
    recalled = [line for lines in on.journals().values() for line in lines if line["kind"] == "memory_recalled"]
    assert "用户最喜欢的语言是Rust" in [hit["text"] for hit in recalled[-1]["hits"]]


async def test_a_queued_message_is_processed_too(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"text": "One."}, {"text": "Two."}]
    lines += [answer("Tea is green"), answer("Coffee is black")]
    with replies_wait() as go_on:
        async with scripted(tmp_path, *lines, **{"memory.facts.quiet_seconds": 0}) as on:
            client = await on.connect()
            await client.send("The first thing is that tea is green.")
            await client.until_event("turn_started")
            await client.until_answered(await client.send("The second thing is that coffee is black."))
            go_on.set()
            await client.until_event("turn_ended")
            await client.until_event("turn_ended")
            await until(lambda: len(of_kind(on, "facts_extracted")) == 2)
        found = [event["entries"][0]["content"] for event in of_kind(on, "facts_extracted")]
        assert found == ["Tea is green", "Coffee is black"]


async def test_a_fork_does_not_process_the_turns_of_its_parent(tmp_path: Path) -> None:
    async with scripted(tmp_path, {"text": "Noted."}, answer("Fact one")) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
    home = Home(tmp_path)
    call = Invocation(home, home.config, os.environ, io.StringIO())
    await asyncio.to_thread(fork_session, call, "main", at=None, key=None)
    lines = [{"text": "Noted."}, {"text": "Noted too."}, answer("Fact two")]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        await client.send("The second thing is that tea is green.", session="main-fork")
        await until(lambda: len(of_kind(on, "facts_extracted")) == 2)
    assert [event["ordinal"] for event in of_kind(on, "facts_extracted")] == [1, 2]
    assert of_kind(on, "facts_extracted")[1]["entries"][0]["content"] == "Fact two"


async def test_a_fact_forgotten_during_a_distillation_does_not_come_back_in_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, forgotten, ask = asyncio.Event(), asyncio.Event(), FactRequests.ask

    async def held(*arguments: Any, **options: Any) -> ModelAnswer:
        answered = await ask(*arguments, **options)
        if options["purpose"] == "distillation":
            asked.set()
            await forgotten.wait()
        return answered

    monkeypatch.setattr(FactRequests, "ask", held)
    lines = [{"text": "Noted."}, answer("Tea is green", "Coffee is black")]
    lines += [distilled("Tea is green, coffee black"), distilled("Coffee is black")]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        await client.chat(SAID)
        await until(lambda: of_kind(on, "facts_extracted"))
        tea = next(entry for entry in of_kind(on, "facts_extracted")[0]["entries"] if "Tea" in entry["content"])
        await client.until_answered(await client.send("/distill"))
        await asked.wait()
        other = await on.connect()
        assert "Forgotten" in await other.command(f"/forget {tea['id'][:8]}", session="other")
        forgotten.set()
        answered = await client.until_event("command_answered")
        usage = await client.command("/usage")
    assert answered["answer"] == "Distilled 1 new fact into 1 long-term fact."
    (event,) = of_kind(on, "facts_distilled")
    assert [entry["content"] for entry in event["entries"]] == ["Coffee is black"]
    assert "| distillation | `scripted:script` |" in usage


async def brought(folder: Path, *rows: Mapping[str, Any]) -> None:
    """Import daily facts of the owner into a home."""
    home, document = Home(folder), folder / "facts.json"
    home.make()
    usual = {"layer": "daily", "owner": "owner"}
    document.write_text(json.dumps([{**usual, **row} for row in rows]))
    await asyncio.to_thread(import_facts, Invocation(home, home.config, os.environ, io.StringIO()), document)


def days_ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


async def test_pending_facts_are_distilled_after_a_day_without_any_message(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"content": "Tea is green"}, {"content": "Tea is black", "tags": ["ws:elsewhere"]}]
    await brought(tmp_path, *({**row, "createdAt": days_ago(2)} for row in rows))
    async with scripted(tmp_path, distilled("Tea is green"), distilled("Tea is black")) as on:
        await until(lambda: len(of_kind(on, "facts_distilled")) == 2)
    made = [event["entries"][0] for event in of_kind(on, "facts_distilled")]
    assert [(entry["owner"], entry.get("tags", [])) for entry in made] == [("owner", []), ("owner", ["ws:elsewhere"])]


async def test_without_extraction_facts_are_still_distilled_and_expire_in_time(tmp_path: Path) -> None:
    old = {"content": "The old printer is grey", "createdAt": days_ago(40)}
    await brought(tmp_path, old, {"content": "Tea is green"}, {"content": "Coffee is black"})
    lines = [{"text": "Noted."}, distilled("Tea is green and coffee black")]
    keys = {"memory.facts.auto_extract": False, "memory.facts.distill_threshold": 2}
    async with scripted(tmp_path, *lines, **keys) as on:
        await until(lambda: of_kind(on, "facts_distilled") and of_kind(on, "facts_dropped"))
        listed = await (await on.connect()).command("/memory")
    (dropped,) = of_kind(on, "facts_dropped")
    (made,) = of_kind(on, "facts_distilled")[0]["entries"]
    assert dropped["why"] == "retention"
    assert "printer" not in listed
    assert made["content"] in listed


async def test_facts_pending_during_a_downtime_are_distilled_before_they_expire(tmp_path: Path) -> None:
    await brought(tmp_path, {"content": "Tea is green", "createdAt": days_ago(40)})
    async with scripted(tmp_path, {"text": "Noted."}, distilled("Tea is green")) as on:
        await until(lambda: of_kind(on, "facts_dropped"))
        assert "Tea is green" in await (await on.connect()).command("/memory")
    assert [event["kind"] for event in events(on)[2:]] == ["facts_distilled", "facts_dropped"]


async def test_distill_counts_the_facts_kept_after_merging(tmp_path: Path) -> None:
    await brought(tmp_path, {"content": "Tea is green"}, {"content": "Coffee is black"})
    lines = [{"text": "Noted."}, distilled("Ann drinks green tea", "Ann drinks green tea.")]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        assert await client.command("/distill") == "Distilled 2 new facts into 1 long-term fact."


async def test_memory_shows_the_facts_of_today_apart_from_those_before(tmp_path: Path) -> None:
    kept = {"content": "Coffee is black", "layer": "longterm"}
    await brought(tmp_path, {"content": "Tea is green"}, {"content": "Ink is blue", "createdAt": days_ago(3)}, kept)
    async with scripted(tmp_path, {"text": "Noted."}, **{"memory.facts.distill_interval_hours": 0}) as on:
        shown = await (await on.connect()).command("/memory")
    lines = [re.sub(r"`\w+` ", "", line) for line in shown.splitlines() if line]
    assert lines[-6:] == [
        "**Today** (1 fact)",
        "- Tea is green (fact, 0.50)",
        "**Earlier in the daily log** (1 fact)",
        "- Ink is blue (fact, 0.50)",
        "**Long-term** (1 fact)",
        "- Coffee is black (fact, 0.50)",
    ]


async def test_a_request_to_remember_becomes_a_note_at_once_and_one_fact(tmp_path: Path, processed: list[str]) -> None:
    lines = [{"text": "Noted."}, answer("Ann drinks oolong tea"), answer("Ann has a dog")]
    async with scripted(tmp_path, *lines) as on:
        client = await on.connect()
        assert "Remembered" in await client.command("/remember I drink oolong tea, please")
        await until(lambda: of_kind(on, "facts_extracted"))
        await client.command("/remember")  # refused: nothing stands behind it
        await client.chat("By the way, I have a dog.")
        await until(lambda: len(of_kind(on, "facts_extracted")) == 2)
        (tea,) = of_kind(on, "facts_extracted")[0]["entries"]
        why = await client.command(f"/why {tea['id'][:8]}")
    processed.clear()
    async with scripted(tmp_path, *lines, answer("Something else")) as on:
        await until(lambda: processed)
    first, second = of_kind(on, "facts_extracted")
    assert (first["ordinal"], first["typed"], second["ordinal"]) == (0, True, 1)
    assert "/remember I drink oolong tea" in why
    assert "Extracted from `/remember`." in why
    assert "oolong" in "".join(path.read_text() for path in (tmp_path / "workspace").rglob("*.md"))
