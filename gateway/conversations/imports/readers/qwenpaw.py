"""The working folder of QwenPaw, `~/.qwenpaw`, or of CoPaw, its former name, `~/.copaw`.

Each workspace (`workspaces/ID`; in older versions the folder itself) has the agent's state for each conversation in
`sessions`, their names in `chats.json`, scheduled jobs in `jobs.json`, and notes. A state may have garbage behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.conversations.imports.readers.import_values import LeftOut, SourceInvalid, SourceItem
from gateway.conversations.imports.readers.linear_messages import MessageCollector, jobs_of, json_file
from gateway.conversations.imports.readers.source_text import calls_in, clean, moment
from gateway.conversations.imports.readers.source_workspace import files_below, notes_in, skills_in_folder

_UNSAFE = re.compile(r'[\\/:*?"<>|]')
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
    for name, file in files_below(workspace / "sessions"):
        if not name.endswith(".json"):
            continue
        chat = _chat_of(file.stem, chats)
        title = clean(chat.get("name"), 300)
        try:
            messages = _messages(json_file(file))
        except ValueError as error:
            yield LeftOut(kind="conversations", reason=str(error), name=title or name)
            continue
        collected = MessageCollector(title or file.stem)
        for message in messages:
            at = moment(message.get("timestamp") or message.get("created_at"))
            role, content, id_ = message.get("role"), message.get("content"), clean(message.get("id"), 100)
            collected.add(role, content, id_=id_, at=at, calls=calls_in(content))
        id_ = f"{workspace.name}/{name}"
        yield from collected.items(id_, at=moment(chat.get("created_at")), title=title, name="" if title else file.stem)


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
    """Return the messages of a state, in the form of version 2 or 1. Raises ValueError."""
    agent = document.get("agent") if isinstance(document, dict) else None
    if not isinstance(agent, dict):
        raise ValueError("it holds no state of an agent")
    state, memory = agent.get("state"), agent.get("memory")
    if isinstance(state, dict) and isinstance(state.get("context"), list):
        found = state["context"]
    else:
        content = memory.get("content") if isinstance(memory, dict) else memory
        found = (
            [each[0] if isinstance(each, list) and each else each for each in content] if isinstance(content, list) else []
        )
    return [message for message in found if isinstance(message, dict)]
