"""Attacks of one agent on another: every tool, aimed at what the other one has. The person is the same, and may see both."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateways import Client, Frame, Gateway, gateway

SECRET = "the-word-that-only-the-other-agent-knows"
WORD = "pomegranate"
"""A word beside the secret, by which searches could find it."""

FACT = f"The {WORD} order is {SECRET}."

CONFIG = """
[agents.work]

[agents.spy]

[tools.shell]
enabled = true

[memory.recall]
mode = "keywords"
"""
AGENTS = ("main", "spy")
"""The agents that attack `work`."""


def call(tool: str, **arguments: object) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def workspace(home: Path, agent: str) -> Path:
    return home / "workspace" if agent == "main" else home / "agents" / agent / "workspace"


class Attack:
    """A conversation of the agent `by`, whose model makes the calls in its first turn. `theirs` is the session of `work`,
    which has the secret, as a note, a file, a fact and a skill of `work` do."""

    def __init__(self, g: Gateway, client: Client, theirs: str) -> None:
        self.g = g
        self.client = client
        self.theirs = theirs

    async def results(self, text: str = "go on") -> list[Frame]:
        """Have the attack run, and return the results of its calls."""
        await self.client.send(text, session="attack")
        await self.client.until_event("turn_ended")
        return [event for _, event in self.client.events("attack") if event["kind"] == "tool_returned"]

    def shown(self) -> str:
        """Return everything that the conversation has, as its client sees it."""
        return json.dumps([event for _, event in self.client.events("attack")])


def settings_with(home: Path, *replies: Mapping[str, Any]) -> dict[str, Any]:
    script = home / "script.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in (*replies, {"text": "done"})))
    return {"providers.scripted.script": str(script), "agent.model": "scripted:script", "approvals.default": "allow"}


@asynccontextmanager
async def attacked(
    home: Path, by: str, calls: Callable[[str], Sequence[Mapping[str, Any]]], *, config: str = CONFIG
) -> AsyncIterator[Attack]:
    """Run a gateway with an attack, after one in which `work` has learned the secret. `calls` is called with the session of
    `work`."""
    notes = workspace(home, "work") / "memory"
    notes.mkdir(parents=True)
    (notes.parent / "MEMORY.md").write_text(f"- The {WORD} code: {SECRET}\n")
    (notes / "2026-11-20.md").write_text(f"- {WORD}: {SECRET}\n")
    (notes.parent / "plan.txt").write_text(f"{WORD} {SECRET}\n")
    skill = notes.parent / "skills" / WORD
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: {WORD}\ndescription: About the {WORD}.\n---\n{SECRET}\n")
    scheduled = call("schedule", action="set", time="0 9 * * 1", text=f"{WORD}: {SECRET}")
    learns = {"text": "", "calls": [call("write_memory", content=FACT), scheduled]}
    async with gateway(home, file=config, settings=settings_with(home, learns)) as g:
        client = await g.connect()
        await client.command("/agent work", session="theirs")
        await client.chat(f"{WORD} {SECRET}", session="theirs")
        (theirs,) = (session for session, events in g.journals().items() if events[0].get("agent") == "work")
        assert any(event["kind"] == "tool_returned" and SECRET in event["output"] for _, event in client.events("theirs"))
    made = {"text": "", "calls": list(calls(theirs))}
    async with gateway(home, file=config, settings=settings_with(home, made)) as g:
        client = await g.connect()
        if by != "main":
            await client.command(f"/agent {by}", session="attack")
        yield Attack(g, client, theirs)


PATHS = (
    "agents/work/workspace/MEMORY.md",
    "../agents/work/workspace/MEMORY.md",
    "../../work/workspace/MEMORY.md",
    "../work/workspace/plan.txt",
    "./../../work/workspace/plan.txt",
    "memory/../../../work/workspace/plan.txt",
    "{home}/agents/work/workspace/MEMORY.md",
    "/proc/self/cwd/../MEMORY.md",
    "link/MEMORY.md",
    "link.md",
    "hard/../../../work/workspace/MEMORY.md",
    "~/agents/work/workspace/MEMORY.md",
)


@pytest.mark.parametrize("by", AGENTS)
async def test_no_path_reaches_the_files_of_another_agent(by: str, tmp_path: Path) -> None:
    own, theirs = workspace(tmp_path, by), workspace(tmp_path, "work")
    own.mkdir(parents=True)
    (own / "link").symlink_to(theirs)
    (own / "link.md").symlink_to(theirs / "MEMORY.md")
    paths = [path.format(home=tmp_path) for path in PATHS]
    calls = [
        each
        for path in paths
        for each in (
            call("read", path=path),
            call("write", path=path, content="stolen"),
            call("edit", path=path, old=WORD, new="stolen"),
            call("memory_get", path=path),
        )
    ]
    async with attacked(tmp_path, by, lambda _: calls) as attack:
        assert len(await attack.results()) == len(calls)
        assert SECRET not in attack.shown()
    assert (theirs / "MEMORY.md").read_text() == f"- The {WORD} code: {SECRET}\n"
    assert (theirs / "plan.txt").read_text() == f"{WORD} {SECRET}\n"
    assert not any("stolen" in path.read_text() for path in theirs.rglob("*") if path.is_file())


def searches(theirs: str) -> list[dict[str, Any]]:
    """The calls that look for what another agent knows: searches by its words, and its session by every name of it."""
    names = (
        f"sessions/{theirs}.jsonl",
        f"sessions/./{theirs}.jsonl",
        f"{theirs}.jsonl",
        theirs,
        f"../sessions/{theirs}.jsonl",
    )
    return [
        *(call("memory_search", query=query) for query in (WORD, f"{WORD} code", "order", "plan")),
        *(call("memory_search", query=WORD, source=source) for source in ("notes", "sessions")),
        *(call("memory_get", path=name, lines=400) for name in (*names, "memory/2026-11-20.md", "MEMORY.md")),
        call("skill", name=WORD),
        call("find_skill", query=WORD),
        call("schedule", action="list"),
        call("read", path=f"skills/{WORD}/SKILL.md"),
    ]


@pytest.mark.parametrize("by", AGENTS)
async def test_no_search_recall_or_citation_shows_what_another_agent_knows(by: str, tmp_path: Path) -> None:
    async with attacked(tmp_path, by, searches) as attack:
        await attack.results(f"Which {WORD} order, code and plan do you know?")
        assert SECRET not in attack.shown()
        for text in (
            f"/memory {WORD}",
            "/memory",
            "/skills",
            "/context detail",
            "/history",
            "/status",
            "/distill",
        ):
            assert SECRET not in await attack.client.command(text, session="attack"), text
        instructions = [event for _, event in attack.client.events("attack") if event["kind"] == "instructions_set"]
        assert WORD not in json.dumps([(each["notes"], each["text"]) for each in instructions])
        assert not [event for _, event in attack.client.events("attack") if event["kind"] == "memory_recalled"]


async def test_the_same_searches_find_what_the_agent_itself_knows(tmp_path: Path) -> None:
    """The counterpart of the attacks, without which they would prove nothing."""

    def without_skills(theirs: str) -> list[dict[str, Any]]:
        return [each for each in searches(theirs) if each["tool"] != "skill"]  # of a new skill a person is asked

    async with attacked(tmp_path, "work", without_skills) as attack:
        found = await attack.results(f"Which {WORD} order, code and plan do you know?")
        outputs = [event["output"] for event in found]
        assert [SECRET in output for output in outputs[:2]] == [True, True], "searches"
        assert SECRET in outputs[6], "its other session"
        assert SECRET in outputs[12], "its note"
        assert SECRET in outputs[14], "its schedule"
        (recalled,) = [event for _, event in attack.client.events("attack") if event["kind"] == "memory_recalled"]
        assert SECRET in json.dumps(recalled)
        assert FACT in await attack.client.command("/memory", session="attack")
        assert WORD in await attack.client.command("/skills", session="attack")


@pytest.mark.parametrize("by", AGENTS)
async def test_a_person_cannot_pin_edit_or_forget_a_fact_of_one_agent_in_a_chat_with_another(
    by: str, tmp_path: Path
) -> None:
    async with attacked(tmp_path, by, lambda _: []) as attack:
        lines = (tmp_path / "agents" / "work" / "facts.jsonl").read_text().splitlines()
        (fact,) = {id_ for line in lines for id_ in re.findall(r'"id":"([0-9a-f-]{8,})"', line)}
        for text in (
            f"/why {fact[:8]}",
            f"/pin {fact[:8]}",
            f"/edit {fact[:8]} stolen",
            f"/forget {fact[:8]}",
            "/clear yes",
        ):
            assert SECRET not in await attack.client.command(text, session="attack"), text
    assert (tmp_path / "agents" / "work" / "facts.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize("by", AGENTS)
async def test_commands_in_the_sandbox_reach_no_file_of_another_agent(by: str, tmp_path: Path) -> None:
    theirs = workspace(tmp_path, "work")
    commands = (
        f"cat {theirs}/MEMORY.md",
        "cat ../work/workspace/MEMORY.md ../agents/work/workspace/MEMORY.md",
        f"ls -R {tmp_path}/agents; cat /proc/1/root{theirs}/plan.txt",
        f"grep -r {SECRET[:12]} {tmp_path} -s",
        f"ln -s {theirs} stolen; cat stolen/plan.txt; mount --bind {theirs} .; echo stolen > {theirs}/plan.txt",
        f"cp {tmp_path}/agents/work/facts.jsonl {tmp_path}/sessions/*.jsonl . ; cat *.jsonl",
    )
    async with attacked(tmp_path, by, lambda _: [call("shell", command=command) for command in commands]) as attack:
        found = await attack.results()
        assert {each["outcome"] for each in found} == {"returned"}, "the sandbox runs commands here"
        assert SECRET not in json.dumps([each["output"] for each in found])
    assert (theirs / "plan.txt").read_text() == f"{WORD} {SECRET}\n"


async def test_each_agent_runs_commands_in_its_own_workspace(tmp_path: Path) -> None:
    async with attacked(tmp_path, "spy", lambda _: [call("shell", command="echo mine > made.txt")]) as attack:
        await attack.results()
    assert (workspace(tmp_path, "spy") / "made.txt").read_text() == "mine\n"
    assert not (workspace(tmp_path, "main") / "made.txt").exists()


async def test_a_fork_of_a_conversation_stays_with_its_agent(tmp_path: Path) -> None:
    async with attacked(tmp_path, "main", searches) as attack:
        await attack.client.say("fork", id="f", session="theirs", key="attack", session_id=attack.theirs)
        await attack.client.until(lambda frame: frame.get("id") == "f" and frame["type"] != "error")
        await attack.client.say("subscribe", session="attack", after=0)
        await attack.client.until_event("session_forked")
        assert "The agent `work` answers here." in await attack.client.command("/agent", session="attack")
