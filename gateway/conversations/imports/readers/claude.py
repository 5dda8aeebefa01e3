"""The export of Claude: `conversations.json`, and `memories.json` and `projects.json`, which become notes.

A message's `parent_message_uuid` is missing in older exports: then its parent is the message before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.export_files import ExportFiles, TooLong, elements
from gateway.conversations.imports.readers.import_values import (
    Kind,
    LeftOut,
    SourceCall,
    SourceConversation,
    SourceFile,
    SourceInvalid,
    SourceItem,
    SourceMessage,
    SourceNote,
)
from gateway.conversations.imports.readers.source_text import call_of, clean, decoded, moment, output_of
from gateway.conversations.imports.readers.source_workspace import note_path

_ROLES = {"human": False, "user": False, "assistant": True}


class _Message(msgspec.Struct, frozen=True):
    uuid: str
    sender: str = ""
    text: Any = None
    content: Any = None
    created_at: Any = None
    attachments: Any = None
    files: Any = None
    parent: str | None = msgspec.field(default=None, name="parent_message_uuid")


class _Conversation(msgspec.Struct, frozen=True):
    uuid: str
    messages: list[_Message] = msgspec.field(name="chat_messages")
    name: str | None = None
    created_at: Any = None
    leaf: str | None = msgspec.field(default=None, name="current_leaf_message_uuid")


class _Document(msgspec.Struct, frozen=True):
    filename: str = ""
    content: Any = None


class _Project(msgspec.Struct, frozen=True):
    uuid: str = ""
    name: str = ""
    description: Any = None
    prompt_template: Any = None
    docs: list[_Document] = []


class _Memories(msgspec.Struct, frozen=True):
    conversations_memory: Any = None
    project_memories: Any = None


def read_claude(path: Path) -> Iterator[SourceItem]:
    """Yield the conversations and notes of an export. Raises SourceInvalid."""
    with closing(ExportFiles(path)) as files:
        names = [name for name in files.names if name.startswith("conversations") and name.endswith(".json")]
        if not names and path.is_file() and path.suffix == ".json":
            names = files.names
        if not names:
            raise SourceInvalid(f"{path.name} holds no conversations.json; it is no export of Claude.")
        for name in names:
            with files.open(name) as stream:
                for number, element in enumerate(elements(stream), 1):
                    yield from _conversation(element, f"number {number} in {name}", files)
        for name, read in (("memories.json", _memory_notes), ("projects.json", _project_notes)):
            if name in files.names:
                with files.open(name) as stream:
                    for element in elements(stream):
                        yield from read(element)


def _conversation(element: bytes | TooLong, place: str, files: ExportFiles) -> Iterator[SourceItem]:
    if isinstance(element, TooLong):
        yield LeftOut(kind="conversations", reason="larger than 32 MiB", name=place)
        return
    try:
        read = decoded(element, _Conversation)
    except ValueError as error:
        yield LeftOut(kind="conversations", reason=str(error), name=place)
        return
    title, left = clean(read.name, 300), Counter[tuple[Kind, str]]()
    messages, above = _messages(read.messages, files, left)
    yield from (LeftOut(kind=kind, reason=reason, name=title or place, count=n) for (kind, reason), n in left.items())
    if not messages:
        yield LeftOut(kind="conversations", reason="it has no messages", name=title or place)
        return
    yield SourceConversation(
        id=read.uuid,
        messages=tuple(messages),
        leaf=above.get(read.leaf or "", ""),
        title=title,
        at=moment(read.created_at),
    )


def _messages(
    read: list[_Message], files: ExportFiles, left: Counter[tuple[Kind, str]]
) -> tuple[list[SourceMessage], dict[str, str]]:
    """Return the messages, and for each id that of the nearest message with a text. Parents precede in an export; one that
    does not is taken for missing. A reply is divided after its calls of tools; the last part has its id."""
    messages: list[SourceMessage] = []
    above: dict[str, str] = {}
    before = ""
    for each in read:
        if each.uuid in above:
            left["messages", "its id occurs twice"] += 1
            continue
        parent = above.get(each.parent, "") if each.parent is not None else before
        parts = _parts(each, left)
        reply = _ROLES.get(each.sender)
        named = tuple(_named(each, files, left)) if reply is False else ()
        if named and not parts:
            parts = [_Part()]
        if reply is None or not parts:
            above[each.uuid] = parent
            continue
        for number, part in enumerate(parts, 1 - len(parts)):
            id_ = f"{each.uuid}/{number + len(parts)}" if number else each.uuid
            message = SourceMessage(id=id_, reply=reply, text=part.text, at=moment(each.created_at), parent=parent)
            messages.append(msgspec.structs.replace(message, reasoning=part.reasoning, calls=tuple(part.calls), files=named))
            parent = id_
        above[each.uuid] = before = each.uuid
    return messages, above


class _Part(msgspec.Struct, kw_only=True):
    """A part of a message: texts, and the calls after them."""

    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[SourceCall] = []

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, self.texts))

    @property
    def reasoning(self) -> str:
        return "\n\n".join(filter(None, self.thoughts))

    def add_result(self, block: dict[str, Any]) -> bool:
        """Add a result to its call; return False if there is none."""
        of = block.get("tool_use_id")
        open_ = [at for at, call in enumerate(self.calls) if call.outcome == "unknown" and (not of or call.id == of)]
        if open_:
            outcome = "failed" if block.get("is_error") else "returned"
            done = msgspec.structs.replace(self.calls[open_[0]], output=output_of(block.get("content")), outcome=outcome)
            self.calls[open_[0]] = done
        return bool(open_)


def _parts(message: _Message, left: Counter[tuple[Kind, str]]) -> list[_Part]:
    """Return the parts of a message, those without a text or a call left out."""
    parts = [_Part()]
    for block in message.content if isinstance(message.content, list) else []:
        match block:
            case {"type": "text", "text": str(text)}:
                _after_calls(parts).texts.append(clean(text))
            case {"type": "thinking", "thinking": str(text)}:
                _after_calls(parts).thoughts.append(clean(text))
            case {"type": "tool_use"}:
                parts[-1].calls.append(call_of(block.get("name"), block.get("input"), block.get("id")))
            case {"type": "tool_result"}:
                if not any(part.add_result(block) for part in reversed(parts)):
                    left["messages", "outputs of tools whose call is missing"] += 1
            case _:
                left["messages", "blocks of an unknown type"] += 1
    if not any(part.text or part.calls for part in parts):
        parts[-1].texts = [clean(message.text)]
    parts[-1].texts += _attached(message, left)
    return [part for part in parts if part.text or part.calls]


def _after_calls(parts: list[_Part]) -> _Part:
    """Return the last part, a new one if the last one ends with calls."""
    if parts[-1].calls:
        parts.append(_Part())
    return parts[-1]


def _attached(message: _Message, left: Counter[tuple[Kind, str]]) -> Iterator[str]:
    """Yield the extracted texts of attached files."""
    for each in message.attachments if isinstance(message.attachments, list) else []:
        text = clean(each.get("extracted_content")) if isinstance(each, dict) else ""
        name = clean(each.get("file_name"), 200) if isinstance(each, dict) else ""
        if text:
            fence = "`" * max(3, 1 + max((len(run) for run in text.split() if set(run) == {"`"}), default=0))
            yield f"{name or 'Attached text'}:\n\n{fence}\n{text}\n{fence}"
        else:
            left["files", "attached files, of which the export has only the names"] += 1


def _named(message: _Message, files: ExportFiles, left: Counter[tuple[Kind, str]]) -> Iterator[SourceFile]:
    """Yield the files of a message that the export has."""
    for each in message.files if isinstance(message.files, list) else []:
        fields = each if isinstance(each, dict) else {}
        name, id_ = clean(fields.get("file_name"), 200), clean(fields.get("file_uuid"), 100)
        if place := files.named(id_) or (name if name in files else ""):
            yield SourceFile(name=name or place, place=place)
        else:
            left["files", "attached files, of which the export has only the names"] += 1


def _memory_notes(element: bytes | TooLong) -> Iterator[SourceItem]:
    try:
        read = decoded(element, _Memories) if isinstance(element, bytes) else _Memories()
    except ValueError as error:
        yield LeftOut(kind="notes", reason=str(error), name="memories.json")
        return
    if text := clean(read.conversations_memory):
        yield SourceNote(path="memory/claude/memory.md", text=f"{text}\n")
    projects = read.project_memories if isinstance(read.project_memories, dict) else {}
    for id_, each in projects.items():
        if text := clean(each):
            yield SourceNote(path=f"memory/claude/projects/{note_path(str(id_)) or 'project'}.md", text=f"{text}\n")


def _project_notes(element: bytes | TooLong) -> Iterator[SourceItem]:
    try:
        read = decoded(element, _Project) if isinstance(element, bytes) else _Project()
    except ValueError as error:
        yield LeftOut(kind="notes", reason=str(error), name="projects.json")
        return
    folder = f"memory/claude/{note_path(read.name) or note_path(read.uuid) or 'project'}"
    about = "\n\n".join(filter(None, (clean(read.description), clean(read.prompt_template))))
    if about:
        yield SourceNote(path=f"{folder}/project.md", text=f"# {clean(read.name, 200)}\n\n{about}\n")
    for document in read.docs:
        if text := clean(document.content):
            name = note_path(document.filename.removesuffix(".md")) or "document"
            yield SourceNote(path=f"{folder}/{name}.md", text=f"{text}\n")
