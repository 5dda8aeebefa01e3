"""Attacks of a guest and a member on what their roles withhold, and on what is the owner's: by HTTP, websocket, MCP and
commands, and by the tools of their models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plugins.commands.builtin import register_commands
from tests.attacks.test_two_agents import call
from tests.gateway.gateways import TOKEN, Client, Gateway, gateway
from tests.gateway.test_mcp_server import post

GUEST, MEMBER, PROGRAM = (
    "the-token-of-gus-who-is-a-guest",
    "the-token-of-ana-who-is-a-member",
    "the-program-of-gus-the-guest-1",
)
TOKENS = {"guest": GUEST, "member": MEMBER}
PERSONS = {"guest": "gus", "member": "ana"}

SECRET = "the-word-that-only-the-owner-knows"
HANDBOOK = "the-word-in-the-notes-for-everybody"

FILE = f"""
[agent]
model = "scripted:script"
[agents.work]
[memory.recall]
mode = "keywords"
[memory.embedding]
provider = "none"
[tools.shell]
enabled = true
[tools.spawn]
enabled = true
[tools.schedule]
enabled = true
[people.gus]
token = "{GUEST}"
role = "guest"
[people.ana]
token = "{MEMBER}"
[mcp_access.program]
token = "{PROGRAM}"
person = "gus"
allow = ["search", "read", "send"]
[approvals]
default = "allow"
"""

DONE = {"text": "done"}


@asynccontextmanager
async def attacked(home: Path, calls: Sequence[dict[str, Any]] = (), *, file: str = FILE) -> AsyncIterator[Gateway]:
    """Run a gateway whose model makes these calls in the first turn of a conversation. The owner has a note, and everybody
    one."""
    shared = home / "workspace" / "shared"
    shared.mkdir(parents=True)
    (shared / "handbook.md").write_text(f"- The pomegranate rule: {HANDBOOK}\n")
    (home / "workspace" / "MEMORY.md").write_text(f"- The pomegranate code: {SECRET}\n")
    (home / "config.toml").write_text(file)
    script: list[dict[str, Any]] = [{"text": "", "calls": list(calls)}, DONE] if calls else [DONE]
    async with gateway(home, file=file, script=script) as running:
        yield running


async def asked(running: Gateway, token: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    """Return the status and the text of the answer to a request."""
    headers = {"Authorization": f"Bearer {token}"}
    async with running.http.request(method, running.url + path, json=body, headers=headers) as response:
        return response.status, await response.text()


async def results(client: Client, text: str = "go on") -> list[str]:
    """Have the model make its calls, and return their results."""
    await client.send(text)
    await client.until_event("turn_ended")
    return [event["output"] for _, event in client.events() if event["kind"] == "tool_returned"]


def files_of(home: Path) -> dict[str, bytes]:
    """Return what the owner has on the disk, and what only the owner changes."""
    logs = [path for path in (home / "sessions").glob("*.jsonl") if b'"person":"owner"' in path.read_bytes()[:1000]]
    names = ("people.jsonl", "pairings.jsonl", "deletions.jsonl", "config.toml")
    others = [home / name for name in names] + [*(home / "workspace").rglob("*.md")]
    own = [path for path in others if "people" not in path.parts and path.exists()]
    return {str(path): path.read_bytes() for path in (*logs, *own)}


@pytest.mark.parametrize("agent", ["main", "work"])
async def test_a_guests_model_has_no_tool_but_those_of_the_role(agent: str, tmp_path: Path) -> None:
    """Also for a guest who was added while the gateway ran, and with any other agent."""
    calls = [
        call("write", path="x.md", content="x"),
        call("edit", path="MEMORY.md", old="a", new="b"),
        call("write_memory", content="The owner owes me money."),
        call("shell", command="id"),
        call("spawn", task="Read MEMORY.md."),
        call("schedule", action="set", time="0 9 * * 1", text="x"),
        call("skill", name="x"),
        call("fetch", url="http://127.0.0.1/"),
    ]
    async with attacked(tmp_path, calls) as running:
        _, body = await asked(running, TOKEN, "POST", "/api/people", {"id": "eve", "role": "guest"})
        offered = {}
        for who, token in (("guest", json.loads(body)["token"]), ("member", MEMBER)):
            client = await running.connect(token)
            if agent != "main":
                await client.command(f"/agent {agent}")
            refused = [output.startswith("There is no tool") for output in await results(client)]
            assert all(refused) if who == "guest" else not all(refused)
            sets = [event for _, event in client.events() if event["kind"] == "instructions_set"]
            offered[who] = {tool["name"] for each in sets for tool in each["tools"]}
        assert offered["guest"] == {"read", "memory_search", "memory_get"} < offered["member"]


async def test_the_tools_of_a_role_are_configured(tmp_path: Path) -> None:
    file = f'{FILE}\n[roles.guest]\ntools = ["wri*"]\n\n[roles.member]\ntools = ["read"]\n'
    calls = [call("write", path="x.md", content="x"), call("read", path="x.md")]
    async with attacked(tmp_path, calls, file=file) as running:
        for token, refused in ((GUEST, [False, True]), (MEMBER, [True, False]), (TOKEN, [False, False])):
            outputs = await results(await running.connect(token))
            assert [output.startswith("There is no tool") for output in outputs] == refused


async def test_a_guest_chooses_no_other_model_than_the_configured_one(tmp_path: Path) -> None:
    async with attacked(tmp_path) as running:
        guest, member = await running.connect(GUEST), await running.connect(MEMBER)
        assert "may not choose this model" in await guest.command("/model scripted:echo")
        await guest.say("configure", id="c", session="main", name="model", value="scripted:echo")
        assert "may not choose" in (await guest.until(lambda frame: frame.get("id") == "c"))["message"]
        assert "scripted:script" in await guest.command("/model scripted:script")
        assert "scripted:echo" in await member.command("/model scripted:echo")
        assert await member.chat("Hello.") == "Hello."
        question = {"model": "scripted:echo", "messages": [{"role": "user", "content": "Hello."}]}
        answers = {}
        for who, token in TOKENS.items():
            answers[who] = await asked(running, token, "POST", "/v1/chat/completions", question)
            status, _ = await asked(running, token, "GET", "/v1/models/scripted:echo")
            assert status == (404 if who == "guest" else 200)
        assert (answers["guest"][0], answers["member"][0]) == (404, 200)
        assert "may not be chosen" in answers["guest"][1]
        await guest.chat("Hello.")
        turn = "/api/context/main/turns/1/what-if"
        for who, token in TOKENS.items():
            status, text = await asked(running, token, "POST", turn, {"model": "scripted:echo"})
            assert ("may not choose" in text) is (who == "guest"), (who, status, text)


async def test_a_model_that_a_person_chose_before_their_role_changed_answers_no_more(tmp_path: Path) -> None:
    async with attacked(tmp_path) as running:
        _, body = await asked(running, TOKEN, "POST", "/api/people", {"id": "eve", "role": "member"})
        eve = await running.connect(json.loads(body)["token"])
        await eve.command("/model scripted:echo")
        assert await eve.chat("Hello.") == "Hello."
        await asked(running, TOKEN, "POST", "/api/people/eve/role", {"role": "guest"})
        assert await eve.chat("Hello again.") == "done"


async def test_a_guest_is_shown_no_note_for_everybody(tmp_path: Path) -> None:
    calls = [
        call("memory_search", query="pomegranate rule"),
        call("memory_get", path="shared/handbook.md"),
        call("read", path="shared/handbook.md"),
        call("read", path="shared"),
        call("read", path="."),
    ]
    shown: dict[str, set[str]] = {}
    async with attacked(tmp_path, calls) as running:
        for who, token in TOKENS.items():
            client = await running.connect(token)
            answers = {f"call {number}": text for number, text in enumerate(await results(client, "The pomegranate rule?"))}
            answers["recall"] = json.dumps([e for _, e in client.events() if e["kind"] == "memory_recalled"])
            for text in ("/memory", "/memory pomegranate rule", "/context detail"):
                answers[text] = await client.command(text)
            paths = ("/api/memory?q=pomegranate", "/api/notes", "/api/notes/shared/handbook.md", "/api/files?q=handbook")
            for path in paths:
                answers[path] = (await asked(running, token, "GET", path))[1]
            assert SECRET not in json.dumps(answers)
            lists = ("call 3", "call 4", "/api/notes", "/api/files?q=handbook")
            shown[who] = {name for name, text in answers.items() if ("handbook.md" if name in lists else HANDBOOK) in text}
        search = {"name": "memory_search", "arguments": {"query": "pomegranate rule"}}
        assert HANDBOOK not in json.dumps(await post(running, PROGRAM, "tools/call", search))
    assert shown["guest"] == set()
    assert len(shown["member"]) >= 9, "the counterpart, without which this would prove nothing"


@pytest.mark.parametrize("role", TOKENS)
async def test_no_request_does_what_only_the_owner_may(role: str, tmp_path: Path) -> None:
    token, person = TOKENS[role], PERSONS[role]
    async with attacked(tmp_path, [call("write_memory", content=f"The pomegranate order is {SECRET}.")]) as running:
        owner = await running.connect()
        await owner.chat(SECRET)
        await owner.command("/remind 1h Feed the cat.")
        await owner.command("/remember The pin is in the drawer.")
        await asked(running, TOKEN, "POST", "/api/people", {"id": "eve"})
        (theirs,) = running.journals()
        (scheduled,) = json.loads((await asked(running, TOKEN, "GET", "/api/schedules"))[1])
        schedule = f"/api/schedules/{scheduled['id']}"
        (known,) = json.loads((await asked(running, TOKEN, "GET", "/api/facts"))[1])["facts"]
        facts = (tmp_path / "facts.jsonl").read_bytes()
        before = files_of(tmp_path)
        requests: list[tuple[str, str, object]] = [
            ("POST", "/api/people", {"id": "mallory", "role": "member"}),
            ("POST", f"/api/people/{person}/role", {"role": "owner"}),
            ("POST", f"/api/people/{person}/role", {"role": "member"}),
            ("POST", "/api/people/eve/token", {}),
            ("POST", "/api/people/eve/disable", {}),
            ("DELETE", "/api/people/eve", None),
            ("DELETE", "/api/people/owner", None),
            ("GET", "/api/people", None),
            ("POST", "/api/erasures", {"session": "main", "person": "owner"}),
            ("POST", "/api/erasures", {"session": theirs, "person": person, "message": 3}),
            ("POST", "/api/erasures", {"session": theirs, "message": 3}),
            ("POST", "/api/erasures", {"session": "", "person": "owner"}),
            ("POST", "/api/erasures", {"session": "", "person": person}),
            ("POST", "/api/erasures", {"session": "main"}),
            ("GET", "/api/config", None),
            ("POST", "/api/config", {"changes": {f"people.{person}.role": "member", "approvals.default": "allow"}}),
            ("POST", "/api/config/check", {"text": f'[people.{person}]\nrole = "member"\n'}),
            ("GET", schedule, None),
            ("POST", f"{schedule}/run", {}),
            ("POST", f"{schedule}/pause", {}),
            ("DELETE", schedule, None),
            ("POST", "/api/schedules", {"person": "owner", "session": "main", "text": "stolen", "time": "+1h"}),
            ("PUT", "/api/notes/MEMORY.md?agent=main", {"text": "stolen"}),
            ("PUT", "/api/notes/shared/handbook.md", {"text": "stolen"}),
            ("DELETE", "/api/notes/shared/handbook.md", None),
            ("GET", "/api/notes/MEMORY.md", None),
            ("GET", f"/api/sessions/{theirs}", None),
            ("GET", f"/api/conversations/main/export?session={theirs}&person=owner", None),
            ("POST", "/api/conversations/main/shares", {"session": theirs}),
            ("GET", "/api/pairings", None),
            ("POST", "/api/pairings", {"code": "123456", "person": person}),
            ("POST", "/api/doctor", {}),
            ("GET", "/api/health", None),
            ("GET", "/status.json", None),
            ("GET", "/metrics", None),
            ("GET", "/api/usage?person=owner", None),
            ("GET", "/api/facts?person=owner", None),
            ("GET", f"/api/facts/{known['id']}", None),
            ("PATCH", f"/api/facts/{known['id']}", {"text": "stolen", "revision": 1}),
            ("POST", f"/api/facts/{known['id']}/pin", {}),
            ("DELETE", f"/api/facts/{known['id']}", None),
            ("GET", "/api/recipients", None),
        ]
        for method, path, body in requests:
            _, text = await asked(running, token, method, path, body)
            assert not any(each in text for each in (SECRET, "Feed the cat", "mallory")), (method, path, text)
        for name in ("list_sessions", "memory_search", "memory_get", "read_session"):
            arguments = {"query": "pomegranate", "path": "MEMORY.md", "session": theirs}
            wanted = {key: arguments[key] for key in {"memory_search": ["query"], "memory_get": ["path"]}.get(name, [])}
            wanted |= {"session": theirs} if name == "read_session" else {}
            assert SECRET not in json.dumps(await post(running, PROGRAM, "tools/call", {"name": name, "arguments": wanted}))
        assert files_of(tmp_path) == before
        assert json.loads((await asked(running, TOKEN, "GET", "/api/schedules"))[1]) == [scheduled]
        assert (tmp_path / "facts.jsonl").read_bytes() == facts
        people = json.loads((await asked(running, TOKEN, "GET", "/api/people"))[1])["people"]
        roles = {each["id"]: each["role"] for each in people}
        assert roles == {"owner": "owner", "gus": "guest", "ana": "member", "eve": "member"}


@pytest.mark.parametrize("role", TOKENS)
async def test_no_command_reaches_what_is_the_owners(role: str, tmp_path: Path) -> None:
    asks = FILE.replace('default = "allow"', 'default = "ask"')
    async with attacked(tmp_path, [call("shell", command="echo owned > x")], file=asks) as running:
        owner, attacker = await running.connect(), await running.connect(TOKENS[role])
        await owner.command("/remember The pin is in the drawer.")
        await owner.command("/remind 1h Feed the cat.")
        await owner.send(SECRET)
        question = (await owner.until_event("approval_asked"))["approval"]
        (theirs,) = running.journals()
        (scheduled,) = json.loads((await asked(running, TOKEN, "GET", "/api/schedules"))[1])
        before = files_of(tmp_path)
        aims = (question, theirs, scheduled["id"], "owner", "MEMORY.md#L1-L1", "shared/handbook.md#L1-L1")
        for name in sorted(each.name for each in register_commands()):
            for argument in ("", *aims, f"rm {scheduled['id']}", f"run {scheduled['id']}", f"pause {scheduled['id']}"):
                if name in {"new", "reset", "delete", "archive"} and argument:
                    continue
                answered = await attacker.command(f"/{name} {argument}".strip())
                assert not any(each in answered for each in (SECRET, "Feed the cat")), (name, argument)
        for decision in ("approve", "deny"):
            await attacker.say("approve", id=decision, session="main", approval=question, decision=decision, scope="once")
            assert (await attacker.until_answered(decision))["type"] == "error"
        assert json.loads((await asked(running, TOKEN, "GET", "/api/schedules"))[1]) == [scheduled]
        assert files_of(tmp_path) == before, "the question is still open, and nothing of the owner's has changed"
        await owner.command(f"/deny {question}")
