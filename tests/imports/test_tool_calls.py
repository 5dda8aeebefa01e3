"""Imported calls of tools: with their results in the log, in the view, shown to people, and never run again."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions.events.messages import AssistantMessage, ToolMessage, UserMessage
from sessions.state.context import is_paired
from sessions.state.reducer import project
from tests.gateway.gateways import gateway
from tests.imports.sources import LISBON, chatgpt, events, imported, journals, node, run, tree

ARGUMENTS = {"path": "crabs.md"}
ENCODED = json.dumps(ARGUMENTS, separators=(",", ":"))
CALLED = [
    ("message_imported", "What does the file say?"),
    ("reply_imported", "I look.", [("read", ENCODED)]),
    ("tool_returned", "returned", "Yeti crab"),
    ("reply_imported", "It names a crab.", []),
]
"""What becomes of the conversation that each program has below."""


def openclaw(folder: Path) -> Path:
    talk: list[dict[str, Any]] = [
        {"role": "user", "content": "What does the file say?"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."}, {"type": "toolCall", "id": "c1", "name": "read", "arguments": ARGUMENTS},
        ]},
        {"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "Yeti crab"}], "isError": False},
        {"role": "assistant", "content": [{"type": "text", "text": "It names a crab."}]},
    ]  # fmt: skip
    lines = [
        {"type": "message", "id": f"e{at}", "parentId": f"e{at - 1}", "timestamp": "2026-05-01T08:00:00Z", "message": each}
        for at, each in enumerate(talk)
    ]
    sessions = folder / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "s.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def openai_messages() -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": ENCODED}
    return [
        {"role": "user", "content": "What does the file say?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "content": "Yeti crab", "tool_call_id": "c1", "name": "read"},
        {"role": "assistant", "content": "It names a crab."},
    ]


def nanobot(folder: Path) -> Path:
    (folder / "sessions").mkdir(parents=True)
    lines = "".join(f"{json.dumps({**each, 'timestamp': '2026-04-01T09:00:01'})}\n" for each in openai_messages())
    (folder / "sessions" / "s.jsonl").write_text(lines)
    return folder


def hermes(folder: Path) -> Path:
    folder.mkdir()
    with sqlite3.connect(folder / "state.db") as database:
        database.execute("CREATE TABLE sessions (id TEXT, source TEXT, started_at REAL, title TEXT)")
        columns = "id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT, tool_call_id TEXT"
        database.execute(f"CREATE TABLE messages ({columns}, timestamp REAL)")
        database.execute("INSERT INTO sessions VALUES ('h', 'cli', 1777622400.5, 'Crabs')")
        rows = [
            (each["role"], each["content"], json.dumps(each.get("tool_calls")), each.get("tool_call_id"))
            for each in openai_messages()
        ]
        insert = "INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, timestamp)"
        database.executemany(f"{insert} VALUES ('h', ?, ?, ?, ?, 1777622401.0)", rows)
    database.close()
    return folder


def qwenpaw(folder: Path) -> Path:
    use = {"type": "tool_use", "id": "c1", "name": "read", "input": ARGUMENTS}
    result = {"type": "tool_result", "id": "c1", "name": "read", "output": [{"type": "text", "text": "Yeti crab"}]}
    content: list[dict[str, Any]] = [
        {"id": "1", "role": "user", "content": "What does the file say?"},
        {"id": "2", "role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
        {"id": "3", "role": "system", "content": [result]},
        {"id": "4", "role": "assistant", "content": [{"type": "text", "text": "It names a crab."}]},
    ]
    (folder / "sessions").mkdir(parents=True)
    (folder / "sessions" / "u_s.json").write_text(json.dumps({"agent": {"memory": {"content": [[m, []] for m in content]}}}))
    return folder


def qwenpaw_history(folder: Path) -> Path:
    """Write a workspace of version 2. The model is not shown the first messages any more, but a message that stands for
    them; a reply has all its calls, with their results, and what was said after them."""
    text, call = {"type": "text", "text": "I look."}, {"type": "tool_call", "id": "c1", "name": "read", "input": ENCODED}
    result = {"type": "tool_result", "id": "c1", "name": "read", "output": "Yeti crab", "state": "success"}
    said = {"type": "text", "text": "It names a crab."}
    blocks = [text, call, said]
    rows: list[tuple[str, str, str, str]] = [
        ("context_msg", "1", "user", json.dumps([{"type": "text", "text": "What does the file say?"}])),
        ("model_turn", "2", "assistant", json.dumps(blocks)),
        ("tool_result", "c1", "assistant", json.dumps([result])),
        ("context_msg", "3", "user", json.dumps([{"type": "text", "text": "And the other one?"}])),
    ]
    failed = {**result, "id": "c2", "output": "There is none.", "state": "error"}
    context: list[dict[str, Any]] = [
        {"id": "s", "role": "user", "content": [{"type": "text", "text": "An index of what was said."}]},
        {"id": "3", "role": "user", "content": [{"type": "text", "text": "And the other one?"}]},
        {"id": "4", "role": "assistant", "content": [{**call, "id": "c2"}, failed, {"type": "text", "text": "No."}]},
    ]
    workspace = folder / "workspaces" / "default"
    (workspace / "sessions" / "console").mkdir(parents=True)
    agent = {"state": {"context": context}, "scroll": {"synthetic_ids": ["s"]}}
    for place in ("u_s.json", "console/u_s.json"):  # an older version has left a copy
        (workspace / "sessions" / place).write_text(json.dumps({"agent": agent}))
    (workspace / "chats.json").write_text(json.dumps({"chats": [{"session_id": "s", "user_id": "u", "name": "Crabs"}]}))
    with sqlite3.connect(workspace / "history.db") as database:
        columns = "kind TEXT, dedup_key TEXT, role TEXT, blocks TEXT, session_id TEXT, content TEXT, created_at TEXT"
        database.execute(f"CREATE TABLE conversation_history (seq INTEGER PRIMARY KEY, {columns})")
        insert = "INSERT INTO conversation_history (kind, dedup_key, role, blocks, session_id) VALUES (?, ?, ?, ?, 's')"
        database.executemany(insert, rows)
    database.close()
    return folder


def claude(folder: Path) -> Path:
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "read", "input": ARGUMENTS},
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Yeti crab"}], "is_error": False},
        {"type": "text", "text": "It names a crab."},
    ]
    messages: list[dict[str, Any]] = [
        {"uuid": "1", "sender": "human", "content": [{"type": "text", "text": "What does the file say?"}]},
        {"uuid": "2", "sender": "assistant", "content": blocks},
    ]
    folder.mkdir()
    conversation = {"uuid": "c", "name": "Crabs", "created_at": "2026-02-01T10:00:00Z", "chat_messages": messages}
    (folder / "conversations.json").write_text(json.dumps([conversation]))
    return folder


def open_webui(folder: Path) -> Path:
    quoted = json.dumps(ENCODED).replace('"', "&quot;")
    details = (
        '<details type="reasoning" done="true" duration="1">\n<summary>Thought</summary>\n> Hm.\n</details>\nI look.\n'
        f'<details type="tool_calls" done="true" id="c1" name="read" arguments="{quoted}" result="&quot;Yeti crab&quot;">\n'
        "<summary>Tool Executed</summary>\n</details>\nIt names a crab."
    )
    messages = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "What does the file say?", "timestamp": 1777622400},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": details, "timestamp": 1777622401},
    }
    folder.mkdir()
    with sqlite3.connect(folder / "webui.db") as database:
        database.execute("CREATE TABLE chat (id TEXT, user_id TEXT, title TEXT, chat TEXT, created_at INTEGER)")
        chat = json.dumps({"history": {"messages": messages, "currentId": "2"}})
        database.execute("INSERT INTO chat VALUES ('c', 'ana', 'Crabs', ?, 1777622400)", (chat,))
    database.close()
    return folder


def llm_responses(folder: Path) -> Path:
    """Write a log in the form of versions that had no threads."""
    folder.mkdir()
    with sqlite3.connect(folder / "logs.db") as database:
        columns = "model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT, datetime_utc TEXT"
        database.execute(f"CREATE TABLE responses (id TEXT, {columns})")
        database.execute(
            "CREATE TABLE tool_calls (id INTEGER, response_id TEXT, name TEXT, arguments TEXT, tool_call_id TEXT)"
        )
        database.execute(
            "CREATE TABLE tool_results (id INTEGER, response_id TEXT, name TEXT, output TEXT, tool_call_id TEXT)"
        )
        asked = ("What does the file say?", "I look.", "2026-02-01T10:00:00")
        told = ("", "It names a crab.", "2026-02-01T10:00:05")
        for id_, (prompt, response, at) in (("r1", asked), ("r2", told)):
            row = (id_, "m", prompt, "", response, "c", at)
            database.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        database.execute("INSERT INTO tool_calls VALUES (1, 'r1', 'read', ?, 'c1')", (ENCODED,))
        database.execute("INSERT INTO tool_results VALUES (1, 'r2', 'read', 'Yeti crab', 'c1')")
    database.close()
    return folder


SOURCES = {
    "llm": llm_responses, "openclaw": openclaw, "nanobot": nanobot, "hermes": hermes, "qwenpaw": qwenpaw, "claude": claude,
    "open-webui": open_webui,
}  # fmt: skip


def of_chatgpt(*more: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation in which a program ran, and more nodes."""
    call = node("b", "a", "assistant", "", LISBON + 1)
    call["message"] |= {"recipient": "python", "content": {"content_type": "code", "text": "print(2 + 2)"}}
    result = node("c", "b", "tool", "", LISBON + 2)
    result["message"]["content"] = {"content_type": "execution_output", "text": "4"}
    answer = node("d", "c", "assistant", "Four.", LISBON + 3)
    return tree("1", "Sums", node("a", None, "user", "2 + 2?", LISBON), call, result, answer, *more, current="d")


def shown(home: Path, session: str) -> list[tuple[Any, ...]]:
    """Return what was imported into a session."""
    found: list[tuple[Any, ...]] = []
    for line in events(home, session):
        match line["kind"]:
            case "message_imported":
                found.append((line["kind"], line["text"]))
            case "reply_imported":
                calls = [(call["tool"], call["arguments"]) for call in line.get("calls", [])]
                found.append((line["kind"], line["text"], calls))
            case "tool_returned":
                found.append((line["kind"], line["outcome"], line["output"]))
    return found


def only_session(home: Path) -> str:
    (journal,) = (home / "sessions").glob("*.jsonl")
    return journal.stem


@pytest.mark.parametrize("kind", SOURCES)
def test_calls_and_results_come_in_their_order_and_once(tmp_path: Path, kind: str) -> None:
    make: Callable[[Path], Path] = SOURCES[kind]
    home, source = tmp_path / "home", make(tmp_path / "source")
    report = imported(home, kind, source)
    assert shown(home, only_session(home)) == CALLED
    assert not [each for each in report["left_out"] if each["kind"] == "messages"]
    before = journals(home)
    assert imported(home, kind, source)["items"]["conversations"] == {"unchanged": 1}
    assert journals(home) == before


def test_what_the_model_of_qwenpaw_is_not_shown_any_more_comes_along(tmp_path: Path) -> None:
    home, source = tmp_path / "home", qwenpaw_history(tmp_path / "source")
    report = imported(home, "qwenpaw", source)
    assert shown(home, only_session(home)) == [
        *CALLED,
        ("message_imported", "And the other one?"),
        ("reply_imported", "", [("read", ENCODED)]),
        ("tool_returned", "failed", "There is none."),
        ("reply_imported", "No.", []),
    ]
    assert not [each for each in report["left_out"] if each["kind"] in ("messages", "conversations")]
    assert imported(home, "qwenpaw", source)["items"]["conversations"] == {"unchanged": 1}
    (source / "workspaces" / "default" / "history.db").write_bytes(b"noise")
    report = imported(home, "qwenpaw", source)
    reasons = [each["reason"] for each in report["left_out"] if each["kind"] == "messages"]
    assert reasons == ["history.db is not an SQLite database"]


def test_the_view_has_each_call_with_its_result(tmp_path: Path) -> None:
    home = tmp_path / "home"
    imported(home, "chatgpt", chatgpt(tmp_path / "export.zip", of_chatgpt()))
    path = home / "sessions" / f"{only_session(home)}.jsonl"
    transcript = project(path.read_bytes().splitlines(keepends=True))
    messages = list(transcript.view.messages)
    assert is_paired(messages)
    asked, called, returned, answered = messages
    assert isinstance(asked, UserMessage)
    assert isinstance(called, AssistantMessage)
    assert [(call.tool, call.arguments) for call in called.calls] == [("python", '{"input":"print(2 + 2)"}')]
    assert isinstance(returned, ToolMessage)
    assert (returned.tool, returned.text, returned.failed) == ("python", "4", False)
    assert answered == AssistantMessage(text="Four.")
    assert transcript.open_turn is None


def test_an_import_that_was_interrupted_between_a_call_and_its_result_is_completed(tmp_path: Path) -> None:
    second = node("e", "c", "assistant", "4.", LISBON + 9)
    export, whole = chatgpt(tmp_path / "export.zip", of_chatgpt(second)), tmp_path / "whole"
    imported(whole, "chatgpt", export)
    expected = journals(whole)
    session = next(path.stem for path in (whole / "sessions").glob("*.jsonl") if "session_forked" not in path.read_text())
    lines = (whole / "sessions" / f"{session}.jsonl").read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        home = tmp_path / f"home-{kept}"
        (home / "sessions").mkdir(parents=True, mode=0o700)
        (home / "sessions" / f"{session}.jsonl").write_bytes(b"".join(lines[:kept]))
        imported(home, "chatgpt", export)
        assert journals(home) == expected, kept


def test_a_home_of_a_version_that_left_calls_out_gets_no_second_conversation(tmp_path: Path) -> None:
    home, export = tmp_path / "home", chatgpt(tmp_path / "export.zip", of_chatgpt())
    without = tree("1", "Sums", node("a", None, "user", "2 + 2?", LISBON), node("d", "a", "assistant", "Four.", LISBON + 3))
    imported(home, "chatgpt", chatgpt(tmp_path / "without.zip", without))
    assert imported(home, "chatgpt", export)["items"] == {"conversations": {"unchanged": 1}}
    more = chatgpt(tmp_path / "more.zip", of_chatgpt(node("f", "d", "user", "Sure?", LISBON + 9)) | {"current_node": "f"})
    assert imported(home, "chatgpt", more)["items"] == {"conversations": {"continued": 1}}
    assert shown(home, only_session(home))[-1] == ("message_imported", "Sure?")


def test_a_call_without_a_result_has_an_unknown_one(tmp_path: Path) -> None:
    home, talk = tmp_path / "home", of_chatgpt()
    del talk["mapping"]["c"]
    talk["mapping"]["d"]["parent"] = "b"
    imported(home, "chatgpt", chatgpt(tmp_path / "export.zip", talk))
    assert [each[1] for each in shown(home, only_session(home)) if each[0] == "tool_returned"] == ["unknown"]


def test_an_erased_question_takes_the_calls_and_results_along(tmp_path: Path) -> None:
    home, talk = tmp_path / "home", of_chatgpt()
    talk["mapping"]["b"]["message"]["content"]["text"] = "print('canary-1')"
    talk["mapping"]["c"]["message"]["content"]["text"] = "canary-2"
    export = chatgpt(tmp_path / "export.zip", talk)
    imported(home, "chatgpt", export)
    (key,) = (line["key"] for line in events(home, only_session(home)) if line["kind"] == "session_opened")
    assert run("erase", "message", key, "3", "--home", home, "--yes").exit_code == 0
    assert run("sessions", "verify", "--home", home).exit_code == 0
    assert not any(b"canary" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert imported(home, "chatgpt", export)["items"] == {"conversations": {"unchanged": 1}}


async def test_an_imported_call_is_sent_with_its_result_and_does_not_run(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", nanobot(tmp_path / "source")
    await asyncio.to_thread(imported, home, "nanobot", folder)
    (home / "workspace" / "crabs.md").write_text("Another crab")
    (key,) = (line["key"] for line in events(home, only_session(home)) if line["kind"] == "session_opened")
    async with gateway(home, script=[{"text": "Sure."}]) as running:
        client = await running.connect()
        await client.chat("Really?", session=key)
    kept = [line for line in events(home, only_session(home)) if line["kind"] in ("tool_called", "tool_returned")]
    assert [(line["kind"], line["output"]) for line in kept] == [("tool_returned", "Yeti crab")]
    found = await asyncio.to_thread(run, "context", only_session(home), "--home", home, "--json")
    messages = json.loads(found.output)["requests"][0]["context"]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    listed = await asyncio.to_thread(run, "sessions", "show", only_session(home), "--home", home)
    assert "crabs.md" in listed.output
    assert "Yeti crab" in listed.output
