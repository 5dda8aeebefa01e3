"""The working folder of QwenPaw, `~/.qwenpaw`, or of CoPaw, its former name, `~/.copaw`.

Each workspace (`workspaces/ID`; in older versions the folder itself) has the agent's state for each conversation in
`sessions`, their names in `chats.json`, scheduled jobs in `jobs.json`, and notes. A state may have garbage behind it. Since
version 2 it has only the messages that the model is shown; all of them are in `history.db`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.import_values import LeftOut, SourceInvalid, SourceItem
from gateway.conversations.imports.readers.linear_messages import MessageCollector, jobs_of, json_file
from gateway.conversations.imports.readers.source_text import (
    calls_in,
    clean,
    decoded,
    inline_files,
    local_moment,
    moment,
    output_of,
    reasoning_of,
)
from gateway.conversations.imports.readers.source_workspace import files_below, notes_in, skills_in_folder
from gateway.conversations.imports.readers.sqlite_copy import opened_copy, table_columns

_UNSAFE = re.compile(r'[\\/:*?"<>|]')
_CALLS = ("tool_use", "tool_call")
_COLUMNS = {"seq", "session_id", "kind", "dedup_key", "role", "content", "blocks", "created_at"}
_FAILED = ("error", "interrupted", "denied")
_PASSING = ("sessions", "active_skills", "customized_skills", "skills", "workspaces", "skill_pool", "dialog")


def read_qwenpaw(path: Path) -> Iterator[SourceItem]:
    """Yield what a working folder holds. Raises SourceInvalid."""
    inner = next((path / name for name in (".qwenpaw", ".copaw") if (path / name).is_dir()), path)
    workspaces = sorted(each for each in (inner / "workspaces").glob("*") if each.is_dir() and not each.is_symlink())
    if (inner / "sessions").is_dir() or (inner / "chats.json").is_file():
        workspaces.append(inner)
    if not workspaces:
        raise SourceInvalid(f"{path} has neither workspaces nor sessions; it is no folder of QwenPaw or CoPaw.")
    for workspace in workspaces:
        prefix = "" if workspace in (inner, inner / "workspaces" / "default") else f"memory/qwenpaw/{workspace.name}/"
        yield from _conversations(workspace)
        yield from notes_in(workspace, into=prefix, passing=_PASSING)
        for name in ("active_skills", "customized_skills", "skills"):
            yield from skills_in_folder(workspace / name)
        yield from jobs_of(workspace / "jobs.json", "QwenPaw")


def _conversations(workspace: Path) -> Iterator[SourceItem]:
    chats = _chats(workspace / "chats.json")
    files = [(name, file) for name, file in files_below(workspace / "sessions") if name.endswith(".json")]
    # A file of an older version stays where it was when it is copied into the folder of its channel.
    moved = {file.stem for name, file in files if "/" in name}
    with ExitStack() as stack:
        try:
            history = stack.enter_context(_History.opened(workspace / "history.db"))
        except SourceInvalid as error:
            yield LeftOut(kind="messages", reason=str(error).rstrip("."), name="history.db")
            history = _History(None)
        for name, file in files:
            if "/" not in name and file.stem in moved:
                continue
            chat = _chat_of(file.stem, chats)
            title = clean(chat.get("name"), 300)
            try:
                messages = _messages(json_file(file))
            except ValueError as error:
                yield LeftOut(kind="conversations", reason=str(error), name=title or name)
                continue
            collected = MessageCollector(title or file.stem)
            for message in history.completed(clean(chat.get("session_id"), 200), messages):
                _add(collected, message)
            id_ = f"{workspace.name}/{name}"
            yield from collected.items(id_, at=moment(chat.get("created_at")), title=title, name="" if title else file.stem)


class _Part(msgspec.Struct, frozen=True):
    """A part of a message: blocks, which end with calls of tools, and their results."""

    blocks: object
    results: list[dict[str, Any]]


def _add(collected: MessageCollector, message: dict[str, Any]) -> None:
    """Add a message. A reply of version 2 has all its calls, with their results, and what was said after each."""
    role, id_ = message.get("role"), clean(message.get("id"), 100)
    at = local_moment(message.get("timestamp") or message.get("created_at"))
    for number, part in enumerate(_parts(message.get("content"))):
        named = f"{id_}#{number}" if id_ and number else id_
        calls, reasoning = calls_in(part.blocks), reasoning_of(part.blocks)
        collected.add(role, part.blocks, id_=named, at=at, model=_model(message), calls=calls, reasoning=reasoning)
        for each in part.results:
            of, output, failed = each.get("id"), each.get("output"), each.get("state") in _FAILED
            collected.add_result(of, output_of(output), failed=failed, files=[*inline_files(output)])


def _model(message: dict[str, Any]) -> str:
    """Return the model of a reply of version 2; "" if it is not known."""
    found: object = message
    for name in ("metadata", "qwenpaw_turn_usage", "usage", "model_name"):
        found = found.get(name) if isinstance(found, dict) else None
    return clean(found, 100)


def _parts(content: object) -> list[_Part]:
    """Return the parts of a message. Calls that follow one another are one part, whether their results stand between them or
    after them."""
    if not isinstance(content, list):
        return [_Part(content, [])]
    parts: list[_Part] = []
    blocks: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    called = False
    for block in (each for each in content if isinstance(each, dict)):
        if block.get("type") == "tool_result":
            results.append(block)
            continue
        is_call = block.get("type") in _CALLS
        if called and not is_call:
            parts.append(_Part(blocks, results))
            blocks, results = [], []
        called = is_call
        blocks.append(block)
    return [*parts, _Part(blocks, results)]


class _History:
    """The messages of all conversations of a workspace, also those that the model is not shown any more.

    Args:
        connection: A copy of the database; None if there is none.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def opened(cls, file: Path) -> Iterator[_History]:
        """Provide the history in a file, which may be missing. Raises SourceInvalid."""
        if not file.is_file():
            yield cls(None)
            return
        with opened_copy(file) as connection:
            columns = table_columns(connection).get("conversation_history", set())
            yield cls(connection if columns >= _COLUMNS else None)

    def completed(self, session: str, state: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages of a conversation in order: those of its state, and those that are only here."""
        known = {id_: message for message in state if (id_ := clean(message.get("id"), 100))}
        stored = self._stored(session)
        ids = {message["id"] for message in stored}
        return [
            *(known.get(message["id"], message) for message in stored),
            *(message for message in state if clean(message.get("id"), 100) not in ids),
        ]

    def _stored(self, session: str) -> list[dict[str, Any]]:
        if self._connection is None or not session:
            return []
        sql = (
            "SELECT kind, dedup_key, role, content, blocks, created_at FROM conversation_history"
            " WHERE session_id = ? AND dedup_key IS NOT NULL ORDER BY seq"
        )
        results: dict[str, dict[str, Any]] = {}
        messages: list[dict[str, Any]] = []
        for kind, key, role, text, blocks, at in self._connection.execute(sql, (session,)):
            content = _blocks(blocks) or [{"type": "text", "text": text}]
            if kind == "tool_result":
                results[clean(key, 200)] = content[0]
            elif kind in ("model_turn", "context_msg"):
                messages.append({"id": clean(key, 100), "role": role, "content": content, "created_at": at})
        return [{**message, "content": _with_results(message["content"], results)} for message in messages]


def _blocks(text: object) -> list[dict[str, Any]]:
    try:
        found = decoded(text.encode("utf-8", "replace"), list[Any]) if isinstance(text, str) else []
    except ValueError:
        return []
    return [block for block in found if isinstance(block, dict)]


def _with_results(blocks: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of a reply with the results of its calls, each after its call."""
    found = []
    for block in blocks:
        found.append(block)
        if block.get("type") in _CALLS and (result := results.get(clean(block.get("id"), 200))) is not None:
            found.append(result)
    return found


def _chats(path: Path) -> list[dict[str, Any]]:
    try:
        document = json_file(path)
    except ValueError:
        return []
    chats = document.get("chats") if isinstance(document, dict) else document
    return [chat for chat in chats if isinstance(chat, dict)] if isinstance(chats, list) else []


def _chat_of(stem: str, chats: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the chat of a file of the state, which is named after the user and the session."""
    for chat in chats:
        session, user = (_UNSAFE.sub("--", clean(chat.get(name), 200)) for name in ("session_id", "user_id"))
        if session and stem in (session, f"{user}_{session}"):
            return chat
    return {}


def _messages(document: object) -> list[dict[str, Any]]:
    """Return the messages of a state, in the form of version 2 or 1, without those that stand for others. Raises
    ValueError."""
    agent = document.get("agent") if isinstance(document, dict) else None
    if not isinstance(agent, dict):
        raise ValueError("it holds no state of an agent")
    state, memory, scroll = agent.get("state"), agent.get("memory"), agent.get("scroll")
    if isinstance(state, dict) and isinstance(state.get("context"), list):
        found = state["context"]
    else:
        content = memory.get("content") if isinstance(memory, dict) else memory
        found = (
            [each[0] if isinstance(each, list) and each else each for each in content] if isinstance(content, list) else []
        )
    ids = scroll.get("synthetic_ids") if isinstance(scroll, dict) else None
    synthetic = {each for each in ids if isinstance(each, str)} if isinstance(ids, list) else set()
    return [message for message in found if isinstance(message, dict) and clean(message.get("id")) not in synthetic]
