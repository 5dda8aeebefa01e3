"""Importing from homes of assistants: conversations, notes, facts, schedules, skills. Nothing of the source changes."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.facts.fact_store import facts_of
from gateway.conversations.imports.readers import openclaw
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from gateway.wiring.open_stores import open_log_stores
from tests.imports.sources import digests, imported, journals, run, spoken

SKILL = "---\nname: tides\ndescription: Tells the tides.\n---\nLook at the moon.\n"


def write(path: Path, content: str | dict[str, Any] | list[Any]) -> Path:
    """Write a file, a value as JSON, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def twice(home: Path, kind: str, source: Path) -> dict[str, Any]:
    """Import twice; return the first report. The second adds nothing, and the source stays as it is."""
    before = digests(source)
    first = imported(home, kind, source)
    after = journals(home)
    second = imported(home, kind, source)
    assert {name for counts in second["items"].values() for name in counts} <= {"unchanged"}
    assert journals(home) == after
    assert digests(source) == before
    return first


OPENCLAW_EVENTS: list[dict[str, Any]] = [
    {"type": "session", "version": 4, "id": "s-1", "timestamp": "2026-05-01T08:00:00.000Z", "cwd": "/x"},
    {"type": "model_change", "id": "m", "parentId": None, "timestamp": "2026-05-01T08:00:00.100Z"},
    {
        "type": "message", "id": "u1", "parentId": "m", "timestamp": "2026-05-01T08:00:01.000Z",
        "message": {"role": "user", "content": "Water the daffodils?", "timestamp": 1777622401000},
    },
    {
        "type": "message", "id": "a1", "parentId": "u1", "timestamp": "2026-05-01T08:00:02.000Z",
        "message": {
            "role": "assistant", "model": "fake-model", "timestamp": 1777622402000,
            "content": [
                {"type": "thinking", "thinking": "It rained."},
                {"type": "text", "text": "Not today."},
                {"type": "toolCall", "id": "c", "name": "read", "arguments": {}},
            ],
        },
    },
    {
        "type": "message", "id": "t1", "parentId": "a1", "timestamp": "2026-05-01T08:00:03.000Z",
        "message": {"role": "toolResult", "content": [{"type": "text", "text": "rows"}]},
    },
    {
        "type": "message", "id": "a2", "parentId": "t1", "timestamp": "2026-05-01T08:00:04.000Z",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "It rained enough."}]},
    },
]  # fmt: skip


def openclaw_workspace(root: Path) -> None:
    """Write what both formats have in common."""
    write(root / "workspace" / "AGENTS.md", "Be kind.\n")
    write(root / "workspace" / "memory" / "2026-05-01.md", "# Friday\n\nIt rained.\n")
    write(root / "workspace" / ".env", "SECRET=canary-9d3f\n")
    (root / "workspace" / "memory" / "link.md").symlink_to("/etc/passwd")
    write(root / "workspace" / "skills" / "tides" / "SKILL.md", SKILL)
    jobs: list[dict[str, Any]] = [
        {"id": "j1", "name": "Mails", "enabled": True, "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "UTC"},
         "payload": {"kind": "agentTurn", "message": "Summarise my mails"}},
        {"id": "j2", "name": "Off", "enabled": False, "schedule": {"kind": "every", "everyMs": 3600000},
         "payload": {"kind": "systemEvent", "text": "Look around"}},
        {"id": "j3", "name": "Past", "enabled": True, "schedule": {"kind": "at", "at": "2020-01-01T00:00:00Z"},
         "payload": {"kind": "systemEvent", "text": "Too late"}},
    ]  # fmt: skip
    write(root / "cron" / "jobs.json", {"version": 1, "jobs": jobs})
    binding = {"agentId": "work", "match": {"channel": "telegram", "peer": {"kind": "group", "id": "-100"}}}
    write(root / "openclaw.json", {"bindings": [binding], "channels": {"telegram": {"botToken": "canary-9d3f"}}})


def compressed(text: str) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    content: bytes = zstd.compress(text.encode())
    return content


def openclaw_database(agent: Path, rows: list[tuple[str | None, bytes | None]]) -> None:
    """Write the events of one session, plain or compressed."""
    (agent / "agent").mkdir(parents=True)
    with sqlite3.connect(agent / "agent" / "openclaw-agent.sqlite") as database:
        columns = "session_id TEXT, seq INTEGER, event_json TEXT, event_zstd BLOB"
        database.execute(f"CREATE TABLE transcript_events ({columns})")
        database.execute("CREATE TABLE session_nodes (session_key TEXT, current_session_id TEXT)")
        database.execute("INSERT INTO session_nodes VALUES ('agent:main:main', 's-1')")
        values = [("s-1", seq, *row) for seq, row in enumerate(rows)]
        database.executemany("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", values)
    database.close()


def test_compressed_events_of_openclaw_are_read_and_damaged_ones_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, home, texts = tmp_path / ".openclaw", tmp_path / "home", [json.dumps(each) for each in OPENCLAW_EVENTS]
    monkeypatch.setattr(openclaw, "EVENT_BYTES", 100_000)
    rows = [(None, compressed(text)) for text in texts]
    large = {"type": "message", "id": "l", "message": {"role": "user", "content": "x" * 100_000}}
    broken = [compressed(json.dumps(large)), b"noise", rows[0][1][:-9], b""]
    openclaw_database(root / "agents" / "main", [*rows, *((None, each) for each in broken), (None, None)])
    report = imported(home, "openclaw", root)
    assert list(spoken(home).values()) == [["Water the daffodils?", "Not today.", "It rained enough."]]
    assert [(each["reason"], each["count"]) for each in report["left_out"]] == [("damaged", 5)]


@pytest.mark.parametrize("stored", ["files", "sqlite"])
def test_openclaw_in_both_of_its_formats(tmp_path: Path, stored: str) -> None:
    root, home = tmp_path / ".openclaw", tmp_path / "home"
    openclaw_workspace(root)
    agent = root / "agents" / "main"
    if stored == "files":
        write(agent / "sessions" / "s-1.jsonl", "".join(f"{json.dumps(each)}\n" for each in OPENCLAW_EVENTS))
        write(agent / "sessions" / "sessions.json", {"agent:main:main": {"sessionId": "s-1"}})
    else:
        openclaw_database(agent, [(json.dumps(each), None) for each in OPENCLAW_EVENTS])
    report = twice(home, "openclaw", root)
    assert report["items"] == {
        "conversations": {"new": 1}, "notes": {"new": 2}, "skills": {"new": 1}, "schedules": {"new": 1},
    }  # fmt: skip
    ((key, texts),) = spoken(home).items()
    assert key.startswith("openclaw-agent-main-main-")
    assert texts == ["Water the daffodils?", "Not today.", "It rained enough."]
    assert report["routes"] == ['[[routes]]\nchannel = "telegram"\nchat = "-100"\nagent = "work"']
    reasons = {each["reason"] for each in report["left_out"]}
    assert "switched off there" in reasons
    assert any("past" in reason for reason in reasons)
    assert (home / "workspace" / "AGENTS.md").read_text() == "Be kind.\n"
    assert (home / "workspace" / "skills" / "tides" / "SKILL.md").read_text() == SKILL
    assert not (home / "workspace" / "memory" / "link.md").exists()
    assert not any(b"canary-9d3f" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def qwenpaw_state(version: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [
        {"id": "1", "name": "user", "role": "user", "content": "Plant tulips?", "timestamp": "2026-04-01 09:00:00.000"},
        {"id": "2", "name": "Friday", "role": "assistant", "content": [{"type": "text", "text": "In October."}]},
    ]
    if version == 2:
        return {"agent": {"state": {"context": messages, "summary": ""}}}
    return {"agent": {"memory": {"content": [[message, []] for message in messages]}}}


@pytest.mark.parametrize(("kind", "version", "garbage"), [("copaw", 1, "}]}garbage"), ("qwenpaw", 2, "")])
def test_qwenpaw_and_copaw(tmp_path: Path, kind: str, version: int, garbage: str) -> None:
    root, home = tmp_path / "state", tmp_path / "home"
    place = root if version == 1 else root / "workspaces" / "default"
    write(place / "sessions" / "u--1_console--u--1.json", json.dumps(qwenpaw_state(version)) + garbage)
    chat = {"id": "c", "name": "Garden", "session_id": "console:u:1", "user_id": "u:1", "created_at": "2026-04-01T09:00:00Z"}
    write(place / "chats.json", {"version": 1, "chats": [chat]})
    job = {"id": "j", "name": "Morning", "enabled": True, "task_type": "text", "text": "Good morning",
           "schedule": {"type": "cron", "cron": "0 8 * * *", "timezone": "UTC"}}  # fmt: skip
    write(place / "jobs.json", {"version": 1, "jobs": [job]})
    write(place / "MEMORY.md", "Likes tulips.\n")
    report = twice(home, kind, root)
    assert report["items"] == {"conversations": {"new": 1}, "notes": {"new": 1}, "schedules": {"new": 1}}
    assert list(spoken(home).values()) == [["Plant tulips?", "In October."]]
    assert next(iter(spoken(home))).startswith("qwenpaw-garden-")


def test_a_state_that_has_forgotten_its_beginning_continues_the_conversation(tmp_path: Path) -> None:
    root, home = tmp_path / "state", tmp_path / "home"
    chat = {"id": "c", "name": "Garden", "session_id": "s", "user_id": "u", "created_at": "2026-04-01T09:00:00Z"}
    write(root / "chats.json", [chat])

    def state(*texts: str) -> None:
        messages = [[{"id": text, "role": "user", "content": text}, []] for text in texts]
        write(root / "sessions" / "u_s.json", {"agent": {"memory": {"content": messages}}})

    state("one", "two", "three")
    imported(home, "qwenpaw", root)
    state("three", "four")
    assert imported(home, "qwenpaw", root)["items"]["conversations"] == {"continued": 1}
    assert list(spoken(home).values()) == [["one", "two", "three", "four"]]


def test_coclaw(tmp_path: Path) -> None:
    root, home = tmp_path / "memory", tmp_path / "home"
    fact = {"id": "f-1", "content": "The API runs on port 3000.", "type": "fact", "tags": ["ws:abc", "api"],
            "importance": 0.8, "createdAt": "2026-03-23T10:00:00Z", "source": "distilled", "pinned": True}  # fmt: skip
    write(root / "longterm.json", [fact])
    write(root / "2026-03-23.json", {"entries": [{**fact, "id": "f-2", "content": "Prefers tabs.", "type": "preference"}]})
    report = twice(home, "coclaw", root)
    assert report["items"] == {"facts": {"new": 2}}
    rows = json.loads(run("memory", "facts", "list", "--home", home, "--json").output)["facts"]
    found = {row["id"]: (row["content"], row.get("layer", "daily"), row.get("pinned", False), row["tags"]) for row in rows}
    assert found["f-1"] == ("The API runs on port 3000.", "longterm", True, ["api"])
    assert found["f-2"][:2] == ("Prefers tabs.", "daily")


async def forget(home: Path, content: str) -> None:
    """Forget the fact with this content."""
    place = Home(home)
    async with (
        open_log_stores(place) as stores,
        facts_of(stores.facts, place, Settings(load_config(None, environment={}, overrides={})), SystemClock()) as facts,
    ):
        (id_,) = (fact.id for fact in await facts.listed(None) if fact.content == content)
        await facts.forget(id_, "owner", owner=None)


@pytest.mark.parametrize("has_id", [True, False])
async def test_a_fact_that_was_forgotten_stays_forgotten(tmp_path: Path, has_id: bool) -> None:
    root, home = tmp_path / "memory", tmp_path / "home"
    port: dict[str, Any] = {"content": "The API runs on port 3000.", **({"id": "f-1"} if has_id else {})}
    write(root / "longterm.json", [port, {"id": "f-2", "content": "Prefers tabs."}])
    await asyncio.to_thread(imported, home, "coclaw", root)
    await forget(home, "The API runs on port 3000.")
    for options in (("--dry-run",), ()):
        report = await asyncio.to_thread(imported, home, "coclaw", root, *options)
        left = [(each["kind"], each["reason"], each["count"]) for each in report["left_out"]]
        assert (report["items"], left) == ({"facts": {"unchanged": 1}}, [("facts", "forgotten here", 1)])
    listed = json.loads(run("memory", "facts", "list", "--home", home, "--json").output)["facts"]
    assert [row["content"] for row in listed] == ["Prefers tabs."]


def test_nanobot(tmp_path: Path) -> None:
    root, home = tmp_path / ".nanobot", tmp_path / "home"
    lines = [
        {"_type": "metadata", "key": "cli:direct", "created_at": "2026-04-01T09:00:00.123456", "metadata": {}},
        {"role": "user", "content": "Remember tulips", "timestamp": "2026-04-01T09:00:01"},
        {"role": "assistant", "content": None, "tool_calls": [{}], "timestamp": "2026-04-01T09:00:02"},
        {"role": "tool", "content": "done", "timestamp": "2026-04-01T09:00:03"},
        {"role": "assistant", "content": "Noted.", "timestamp": "2026-04-01T09:00:04"},
    ]
    write(root / "sessions" / "abc" / "Y2xp.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines) + '{"role": "us')
    write(root / "workspace" / "memory" / "MEMORY.md", "Tulips.\n")
    write(root / "config.json", {"providers": {"custom": {"apiKey": "sk-secret"}}})
    job = {"id": "j", "name": "Every hour", "enabled": True, "schedule": {"kind": "every", "everyMs": 3600000},
           "payload": {"message": "Drink water"}}  # fmt: skip
    write(root / "cron" / "jobs.json", {"version": 1, "jobs": [job]})
    report = twice(home, "nanobot", root)
    assert report["items"] == {"conversations": {"new": 1}, "notes": {"new": 1}, "schedules": {"new": 1}}
    assert list(spoken(home).values()) == [["Remember tulips", "", "Noted."]]


def test_hermes_while_its_database_is_open_in_wal_mode(tmp_path: Path) -> None:
    root, home = tmp_path / ".hermes", tmp_path / "home"
    root.mkdir()
    live = sqlite3.connect(root / "state.db")
    live.execute("PRAGMA journal_mode = WAL")
    live.execute("CREATE TABLE sessions (id TEXT, source TEXT, started_at REAL, title TEXT, model TEXT, archived INTEGER)")
    live.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL)")
    live.execute("INSERT INTO sessions VALUES ('h', 'cli', 1777622400.5, 'Orchids', 'fake-model', 0)")
    rows = [("h", "user", "Remember orchids", 1777622401.0), ("h", "assistant", "Noted.", 1777622402.0)]
    live.executemany("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", rows)
    live.commit()  # in the WAL, which is not checkpointed
    write(root / "memories" / "MEMORY.md", "Orchids need little water.\n")
    write(root / "skills" / "garden" / "tides" / "SKILL.md", SKILL)
    write(root / "skills" / ".bundled_manifest", "other:abc\n")
    report = twice(home, "hermes", root)
    live.close()
    assert report["items"] == {"conversations": {"new": 1}, "notes": {"new": 1}, "skills": {"new": 1}}
    assert list(spoken(home).values()) == [["Remember orchids", "Noted."]]


def test_open_webui(tmp_path: Path) -> None:
    root, home = tmp_path / "data", tmp_path / "home"
    root.mkdir()
    messages = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "Name a crab", "timestamp": 1777622400},
        "2": {
            "id": "2",
            "parentId": "1",
            "role": "assistant",
            "content": "Yeti crab",
            "model": "m",
            "timestamp": 1777622401,
        },
        "3": {
            "id": "3",
            "parentId": "1",
            "role": "assistant",
            "content": "Ghost crab",
            "model": "m",
            "timestamp": 1777622402,
        },
    }
    chat = json.dumps({"history": {"messages": messages, "currentId": "2"}})
    with sqlite3.connect(root / "webui.db") as database:
        database.execute('CREATE TABLE "user" (id TEXT, created_at INTEGER)')
        database.execute("INSERT INTO user VALUES ('ana', 1), ('bob', 2)")
        database.execute(
            "CREATE TABLE chat (id TEXT, user_id TEXT, title TEXT, chat TEXT, created_at INTEGER, archived INTEGER)"
        )
        database.execute("INSERT INTO chat VALUES ('c', 'ana', 'Crabs', ?, 1777622400, 1)", (chat,))
        database.execute("INSERT INTO chat VALUES ('d', 'bob', 'Other', '{}', 1777622400, 0)")
        database.execute("CREATE TABLE memory (id TEXT, user_id TEXT, content TEXT, created_at INTEGER)")
        database.execute("INSERT INTO memory VALUES ('m', 'ana', 'Likes crabs.', 1777622400)")
    database.close()
    report = twice(home, "open-webui", root)
    assert report["items"] == {"conversations": {"new": 1}, "branches": {"forked": 1}, "facts": {"new": 1}}
    assert sorted(spoken(home).values()) == [["Name a crab", "Ghost crab"], ["Name a crab", "Yeti crab"]]
    assert [(each["reason"], each["count"]) for each in report["left_out"]] == [("of other users of Open WebUI", 1)]


def test_claude_with_memories_and_projects(tmp_path: Path) -> None:
    root, home = tmp_path / "export", tmp_path / "home"
    file = {"file_name": "reefs.txt", "extracted_content": "A list"}
    messages: list[dict[str, Any]] = [
        {"uuid": "1", "sender": "human", "text": "Old", "content": [{"type": "text", "text": "Name a reef"}],
         "created_at": "2026-02-01T10:00:00.123456Z", "attachments": [file]},
        {"uuid": "2", "sender": "assistant", "text": "", "created_at": "2026-02-01T10:00:05Z",
         "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Ningaloo."}, {"type": "tool_use"}]},
    ]  # fmt: skip
    conversation = {"uuid": "c", "name": "Reefs", "created_at": "2026-02-01T10:00:00Z", "chat_messages": messages}
    write(root / "conversations.json", [conversation])
    write(root / "memories.json", [{"conversations_memory": "Dives often.", "project_memories": {"../../x": "Escapes"}}])
    docs = [{"filename": "../../../etc/cron.d/x.md", "content": "A plan"}]
    write(root / "projects.json", [{"uuid": "p", "name": "Reef trip", "description": "In May", "docs": docs}])
    report = twice(home, "claude", root)
    assert report["items"] == {"conversations": {"new": 1}, "notes": {"new": 4}}
    assert list(spoken(home).values()) == [["Name a reef\n\nreefs.txt:\n\n```\nA list\n```", "Ningaloo."]]
    notes = {path.relative_to(home / "workspace").as_posix() for path in (home / "workspace").rglob("*.md")}
    assert all(note.startswith("memory/claude/") and ".." not in note for note in notes)
    assert len(notes) == 4


def test_a_note_that_is_here_is_kept_and_one_that_has_grown_is_continued(tmp_path: Path) -> None:
    root, home = tmp_path / ".nanobot", tmp_path / "home"
    write(root / "workspace" / "AGENTS.md", "Theirs.\n")
    day = write(root / "workspace" / "memory" / "2026-05-01.md", "Morning.\n")
    write(home / "workspace" / "AGENTS.md", "Ours.\n")
    os.chmod(home, 0o700)
    imported(home, "nanobot", root)
    day.write_text("Morning.\nEvening.\n")
    assert imported(home, "nanobot", root)["items"] == {"notes": {"unchanged": 1, "continued": 1}}
    assert (home / "workspace" / "AGENTS.md").read_text() == "Ours.\n"
    assert (home / "workspace" / "memory" / "nanobot" / "AGENTS.md").read_text() == "Theirs.\n"
    assert (home / "workspace" / "memory" / "2026-05-01.md").read_text() == "Morning.\nEvening.\n"


@pytest.mark.parametrize("kind", ["openclaw", "qwenpaw", "copaw", "coclaw", "nanobot", "hermes", "llm", "open-webui"])
def test_an_empty_folder_and_a_file_of_noise_are_refused_in_one_sentence(tmp_path: Path, kind: str) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(os.urandom(5000))
    (tmp_path / "empty").mkdir()
    for source in (noise, tmp_path / "empty"):
        result = run("import", kind, source, "--home", tmp_path / "home")
        assert result.exit_code in (0, 2), result.output
        assert "Traceback" not in result.output
        if result.exit_code:
            assert len([line for line in result.stderr.splitlines() if line.startswith("exuvia: ")]) == 1
    assert journals(tmp_path / "home") == {}
