"""The export of ChatGPT: `conversations.json`, or `conversations-000.json` and so on, in a folder or a .zip archive.

A conversation is a tree of nodes, of which `current_node` ends the branch that is shown. A call of a tool is a message to
it, and its result one of the tool. Nodes without a message, of the system, or hidden ones are passed over: what follows them
follows the node before.
"""

from __future__ import annotations

import re
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
    SourceConversation,
    SourceFile,
    SourceInvalid,
    SourceItem,
    SourceMessage,
)
from gateway.conversations.imports.readers.source_text import LONGEST_TEXT, call_of, clean, decoded, moment

_NAMES = re.compile(r"conversations(-\d{1,6})?\.json")


class _Author(msgspec.Struct, frozen=True):
    role: str = ""


class _Content(msgspec.Struct, frozen=True):
    content_type: str = ""
    parts: Any = None
    text: Any = None
    result: Any = None


class _Metadata(msgspec.Struct, frozen=True):
    hidden: Any = msgspec.field(default=None, name="is_visually_hidden_from_conversation")
    model: Any = msgspec.field(default=None, name="model_slug")
    attachments: Any = None


class _Message(msgspec.Struct, frozen=True):
    id: str = ""
    author: _Author | None = None
    create_time: Any = None
    content: _Content | None = None
    metadata: _Metadata | None = None
    recipient: str | None = None


class _Node(msgspec.Struct, frozen=True):
    message: _Message | None = None
    parent: str | None = None


class _Conversation(msgspec.Struct, frozen=True):
    mapping: dict[str, _Node]
    id: str | None = None
    conversation_id: str | None = None
    title: str | None = None
    create_time: Any = None
    current_node: str | None = None
    is_archived: bool | None = None


def read_chatgpt(path: Path) -> Iterator[SourceItem]:
    """Yield the conversations of an export. Raises SourceInvalid."""
    with closing(ExportFiles(path)) as files:
        names = [name for name in files.names if _NAMES.fullmatch(name)] or _single(files, path)
        if not names:
            raise SourceInvalid(f"{path.name} holds no conversations.json; it is no export of ChatGPT.")
        for name in names:
            with files.open(name) as stream:
                for number, element in enumerate(elements(stream), 1):
                    yield from _items(element, f"number {number} in {name}", files)


def _single(files: ExportFiles, path: Path) -> list[str]:
    return files.names if path.is_file() and len(files.names) == 1 and path.suffix == ".json" else []


def _items(element: bytes | TooLong, place: str, files: ExportFiles) -> Iterator[SourceItem]:
    if isinstance(element, TooLong):
        yield LeftOut(kind="conversations", reason="larger than 32 MiB", name=place)
        return
    try:
        yield from _conversation(decoded(element, _Conversation), place, files)
    except ValueError as error:
        yield LeftOut(kind="conversations", reason=str(error), name=place)


def _conversation(read: _Conversation, place: str, files: ExportFiles) -> Iterator[SourceItem]:
    title = clean(read.title, 300)
    known = read.conversation_id or read.id
    if not known:
        yield LeftOut(kind="conversations", reason="it has no id", name=title or place)
        return
    left = Counter[tuple[Kind, str]]()
    messages = _Tree(read.mapping, files, left)
    ordered = messages.ordered()
    yield from (LeftOut(kind=kind, reason=reason, name=title or place, count=n) for (kind, reason), n in left.items())
    if not ordered:
        yield LeftOut(kind="conversations", reason="it has no messages", name=title or place)
        return
    yield SourceConversation(
        id=known,
        messages=tuple(ordered),
        leaf=messages.visible_at_or_before(read.current_node or ""),
        title=title,
        at=moment(read.create_time),
        archived=bool(read.is_archived),
    )


def _asset(part: object) -> str:
    """Return the beginning of the name of the file with a picture, or a recording; "" if a part is none."""
    pointer = clean(part.get("asset_pointer"), 300) if isinstance(part, dict) else ""
    return pointer.partition("://")[2].partition("#")[0]


class _Tree:
    """The visible messages of a tree, in which links may be missing or go round in circles."""

    def __init__(self, nodes: dict[str, _Node], files: ExportFiles, left: Counter[tuple[Kind, str]]) -> None:
        self._nodes = nodes
        self._files = files
        self._left = left
        self._messages: dict[str, SourceMessage] = {}
        self._above: dict[str, str] = {}
        """The nearest visible node at or above each node; empty if there is none."""
        for id_, node in nodes.items():
            if node.message is not None and (shown := self._shown(id_, node.message)) is not None:
                self._messages[id_] = shown
        for node in nodes.values():
            if node.message is not None and node.message.author and node.message.author.role == "tool":
                self._add_result(node.parent or "", node.message.content or _Content())

    def _add_result(self, above: str, content: _Content) -> None:
        """Add a result to the call at or above a node."""
        shown = self._messages.get(self.visible_at_or_before(above))
        if shown is None or not shown.calls:
            self._left["messages", "outputs of tools whose call is missing"] += 1
            return
        (call,) = shown.calls
        output = "\n\n".join(filter(None, (call.output, self._raw(content))))[:LONGEST_TEXT]
        outcome = "failed" if content.content_type == "system_error" else "returned"
        files = (*call.files, *self._pictures(content))
        done = msgspec.structs.replace(call, output=output, outcome=outcome, files=files)
        self._messages[shown.id] = msgspec.structs.replace(shown, calls=(done,))

    def visible_at_or_before(self, id_: str) -> str:
        """Return the nearest visible node from a node towards the root, itself included; empty if there is none."""
        way: list[str] = []
        seen: set[str] = set()
        found = ""
        while id_ in self._nodes and id_ not in seen:
            if id_ in self._messages or id_ in self._above:
                found = id_ if id_ in self._messages else self._above[id_]
                break
            seen.add(id_)
            way.append(id_)
            id_ = self._nodes[id_].parent or ""
        for each in way:
            self._above[each] = found
        return found

    def ordered(self) -> list[SourceMessage]:
        """Return the messages, each after its parent. A circle is cut at its first node in the file."""
        parents = {id_: self.visible_at_or_before(self._nodes[id_].parent or "") for id_ in self._messages}
        placed: dict[str, SourceMessage] = {}
        for start in self._messages:
            chain: list[str] = []
            on_chain: set[str] = set()
            id_ = start
            while id_ and id_ not in placed and id_ not in on_chain:
                chain.append(id_)
                on_chain.add(id_)
                id_ = parents[id_]
            if id_ and id_ in on_chain:
                self._left["messages", "the link to the message before it goes round in a circle"] += 1
                id_ = ""
            for each in reversed(chain):
                placed[each] = msgspec.structs.replace(self._messages[each], parent=id_)
                id_ = each
        return list(placed.values())

    def _shown(self, id_: str, message: _Message) -> SourceMessage | None:
        role = message.author.role if message.author else ""
        content = message.content or _Content()
        if role not in ("user", "assistant"):
            return None
        if message.metadata is not None and message.metadata.hidden:
            self._left["messages", "hidden in ChatGPT"] += 1
            return None
        called = role == "assistant" and message.recipient not in (None, "all", "")
        calls = (call_of(message.recipient, self._raw(content), id_),) if called else ()
        text = "" if called else self._text(content)
        files = () if role == "assistant" else tuple(self._attached(message.metadata, self._pictures(content)))
        if not text and not calls and not files:
            return None
        model = clean(message.metadata.model, 100) if message.metadata else ""
        at = moment(message.create_time)
        return SourceMessage(id=id_, reply=role == "assistant", text=text, at=at, model=model, calls=calls, files=files)

    def _pictures(self, content: _Content) -> list[SourceFile]:
        """Return the pictures of a message of which the export has the bytes."""
        parts = content.parts if isinstance(content.parts, list) else []
        places = (self._files.named(_asset(part)) for part in parts if isinstance(part, dict))
        return [SourceFile(name=place, place=place) for place in places if place]

    def _attached(self, metadata: _Metadata | None, pictures: list[SourceFile]) -> Iterator[SourceFile]:
        """Yield the files of a person's message: the pictures, with their names, and others."""
        known = {each.place: each for each in pictures}
        listed = metadata.attachments if metadata is not None and isinstance(metadata.attachments, list) else []
        for each in listed:
            if not isinstance(each, dict) or not (id_ := clean(each.get("id"), 200)):
                continue
            if place := self._files.named(id_):
                media = clean(each.get("mimeType") or each.get("mime_type"), 100)
                known[place] = SourceFile(name=clean(each.get("name"), 200) or place, media=media, place=place)
            elif not clean(each.get("mimeType") or each.get("mime_type"), 100).startswith("image/"):  # counted as a part
                self._left["files", "attached files that the export does not have"] += 1
        yield from known.values()

    def _raw(self, content: _Content) -> str:
        """Return the text of a call or a result."""
        parts = content.parts if isinstance(content.parts, list) else []
        texts = (*(self._part(part) for part in parts), clean(content.text), clean(content.result))
        return "\n\n".join(filter(None, texts))

    def _text(self, content: _Content) -> str:
        match content.content_type:
            case "text" | "multimodal_text":
                parts = content.parts if isinstance(content.parts, list) else []
                return "\n\n".join(filter(None, (self._part(part) for part in parts)))
            case "code" | "execution_output":
                text = clean(content.text)
                return f"```\n{text}\n```" if text else ""
            case "thoughts" | "reasoning_recap":
                self._left["messages", "reasoning"] += 1
            case "user_editable_context" | "model_editable_context":
                self._left["messages", "custom instructions"] += 1
            case other:
                self._left["messages", f"of the type {clean(other, 40) or 'unknown'}"] += 1
        return ""

    def _part(self, part: object) -> str:
        if isinstance(part, str):
            return clean(part)
        kind = part.get("content_type") if isinstance(part, dict) else None
        if self._files.named(_asset(part)):
            return ""
        if kind == "audio_transcription" and isinstance(part, dict):
            return clean(part.get("text"))
        self._left["files", "pictures and recordings"] += 1
        return "[a picture]" if kind == "image_asset_pointer" else ""
