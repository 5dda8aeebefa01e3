"""Kill -9 while a turn is looked through for facts, while facts are distilled, and while a document of them is brought in:
what the person said is found, once, and what was found is kept, once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plugins.policies.languages.prompts import language
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.faults.gateway_process import ROOT, gateway_process
from tests.faults.stage import needs_strace
from tests.waiting import until

TURNS = 4
ENGLISH = language("en").facts


class FactModel(OpenAIServer):
    """Finds one fact in each turn, which names its number, and keeps each in a distillation; silent to one purpose."""

    def __init__(self) -> None:
        super().__init__(respond=self._said)
        self.silent_to = ""

    def asked(self, what: str) -> int:
        return sum(purpose(body) == what for body in self.requests)

    def _said(self, body: Json) -> ScriptedResponse | Fault:
        what, text = purpose(body), body["messages"][-1]["content"]
        if what == self.silent_to:
            return Fault(end="hang")
        if what == "answer":
            return ScriptedResponse("Noted.")
        if what == "extraction":
            return ScriptedResponse(facts(*(f"Crab {n} lives in pond {n}{n}" for n in range(TURNS) if f"crab {n}" in text)))
        new = text[text.index(f"{ENGLISH.new}:") :].splitlines()
        return ScriptedResponse(facts(*(line.partition(") ")[2] for line in new if ". (" in line)))


def purpose(body: Json) -> str:
    told = body["messages"][0]["content"]
    beginnings = {"extraction": ENGLISH.extraction, "distillation": ENGLISH.distillation}
    return next((name for name, text in beginnings.items() if told.startswith(text.strip()[:60])), "answer")


def facts(*contents: str) -> str:
    return json.dumps({"facts": [{"content": each, "type": "fact", "importance": 0.7, "tags": []} for each in contents]})


def settings(server: OpenAIServer, **more: Any) -> dict[str, str]:
    given: dict[str, Any] = {
        "AGENT__MODEL": "openai:fake",
        "PROVIDERS__OPENAI__BASE_URL": server.url,
        "PROVIDERS__OPENAI__API_KEY": KEY,
        "MEMORY__EMBEDDING__PROVIDER": "none",
        "MEMORY__FACTS__QUIET_SECONDS": 0.05,
        **more,
    }
    return {f"EXUVIA__{name}": json.dumps(value) for name, value in given.items()}


def told(home: Path, kind: str) -> list[Json]:
    path = home / "facts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [event for line in lines if line.endswith(b"\n") and (event := json.loads(line))["kind"] == kind]


def contents(events: list[Json]) -> list[str]:
    return sorted(entry["content"] for event in events for entry in event.get("entries", ()))


ALL = [f"Crab {n} lives in pond {n}{n}" for n in range(TURNS)]


async def run(
    home: Path, settings: dict[str, str], turns: range, condition: Callable[[], object], *, kill: bool, command: str = ""
) -> None:
    """One run of the gateway with some turns and a command, killed or stopped as soon as something is so."""
    async with gateway_process(home, settings=settings) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        for number in turns:
            await client.chat(f"Remember that crab {number} lives in pond {number}{number}.")
        if command:
            await client.send(command)
        await until(condition)
        if kill:
            await gateway.kill()
        else:
            assert await gateway.stop() == 0


@pytest.mark.parametrize("moment", ["asked", "found", "before"])
async def test_after_a_kill_during_an_extraction_each_turn_is_extracted_once(tmp_path: Path, moment: str) -> None:
    async with FactModel().serving() as server:
        quiet = 600 if moment == "before" else 0.05
        server.silent_to = "extraction" if moment == "asked" else ""
        conditions: dict[str, Callable[[], object]] = {
            "asked": lambda: server.asked("extraction"),
            "found": lambda: told(tmp_path, "facts_extracted"),
            "before": lambda: True,
        }
        given = settings(server, MEMORY__FACTS__QUIET_SECONDS=quiet)
        await run(tmp_path, given, range(TURNS), conditions[moment], kill=True)
        server.silent_to = ""
        all_found = lambda: len(told(tmp_path, "facts_extracted")) == TURNS  # noqa: E731 - said once
        await run(tmp_path, settings(server), range(0), all_found, kill=False)
    found = told(tmp_path, "facts_extracted")
    assert [event["ordinal"] for event in found] == list(range(1, TURNS + 1))
    assert contents(found) == ALL


@pytest.mark.parametrize("moment", ["asked", "distilled"])
async def test_after_a_kill_during_a_distillation_each_fact_is_kept_once(tmp_path: Path, moment: str) -> None:
    async with FactModel().serving() as server:
        await run(
            tmp_path, settings(server), range(TURNS), lambda: len(told(tmp_path, "facts_extracted")) == TURNS, kill=False
        )
        server.silent_to = "distillation" if moment == "asked" else ""
        condition = (
            (lambda: server.asked("distillation")) if moment == "asked" else (lambda: told(tmp_path, "facts_distilled"))
        )
        await run(tmp_path, settings(server), range(0), condition, kill=True, command="/distill")
        server.silent_to = ""
        due = settings(server, MEMORY__FACTS__DISTILL_THRESHOLD=1)
        await run(tmp_path, due, range(0), lambda: told(tmp_path, "facts_distilled"), kill=False)
    assert contents(told(tmp_path, "facts_distilled")) == ALL
    taken = Counter(each for event in told(tmp_path, "facts_distilled") for each in event["taken"])
    assert set(taken) == {entry["id"] for event in told(tmp_path, "facts_extracted") for entry in event["entries"]}
    assert set(taken.values()) == {1}


@needs_strace
@pytest.mark.parametrize("call", ["write", "fdatasync"])
async def test_an_import_killed_at_any_step_is_complete_or_absent_and_not_repeated(tmp_path: Path, call: str) -> None:
    document = tmp_path / "facts.json"
    rows = [{"content": f"crab {n} lives in pond {n}{n}", "layer": "daily"} for n in range(200)]
    document.write_text(json.dumps(rows))
    home = tmp_path / "home"
    command = [sys.executable, "-m", "exuvia", "memory", "facts", "import", str(document), "--home", str(home)]

    async def bring(*before: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *before,
            *command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait()

    path = str(home / "facts.jsonl")
    home.mkdir()
    for nth in (1, 2, 3):
        await bring("strace", "-f", "-qq", "-o", os.devnull, "-P", path, "-e", f"inject={call}:signal=KILL:when={nth}")
        assert len(contents(told(home, "facts_written"))) in (0, 200)
    await bring()
    assert contents(told(home, "facts_written")) == sorted(row["content"] for row in rows)


@needs_strace
@pytest.mark.parametrize("call", ["write", "fdatasync"])
async def test_an_edit_killed_at_any_step_leaves_the_old_text_or_the_new_one(tmp_path: Path, call: str) -> None:
    document, home = tmp_path / "facts.json", tmp_path / "home"
    document.write_text(json.dumps([{"id": "crab", "content": "the crab lives in pond 0"}]))
    home.mkdir()
    path = str(home / "facts.jsonl")

    async def run(*arguments: str, before: tuple[str, ...] = ()) -> int:
        command = (sys.executable, "-m", "exuvia", "memory", "facts", *arguments, "--home", str(home))
        process = await asyncio.create_subprocess_exec(
            *before,
            *command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait()

    assert await run("import", str(document)) == 0
    for nth in (1, 2):
        kill = ("strace", "-f", "-qq", "-o", os.devnull, "-P", path, "-e", f"inject={call}:signal=KILL:when={nth}")
        before = [event["content"] for event in told(home, "fact_edited")]
        text = f"the crab lives in pond {nth}"
        await run("edit", "crab", "--text", text, before=kill)
        assert [event["content"] for event in told(home, "fact_edited")] in (before, [*before, text])
        assert await run("edit", "crab", "--text", text) == 0  # the log is whole, and the same edit is recorded once
        assert [event["content"] for event in told(home, "fact_edited")] == [*before, text]
