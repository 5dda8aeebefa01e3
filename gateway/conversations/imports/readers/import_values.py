"""The values that the readers of other programs yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from sessions.events.messages import Attachment


class SourceInvalid(Exception):
    """The source cannot be imported at all; `str(error)` is a sentence."""


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file or picture of a message or of the result of a tool: its name, its media type as stated there, and its content,
    or its `place` among the files of the source (`programs.files_of`)."""

    name: str
    media: str = ""
    content: bytes = b""
    place: str = ""


class SourceCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool by a reply, with its result.

    Attributes:
        tool: The tool, as a name that every model's API accepts.
        arguments: The arguments as JSON.
        id: The program's id of the call; empty if it has none.
        output: The output.
        outcome: `unknown` if the program has no result.
        files: The files of the result, and `attachments` those of them that are stored here.
    """

    tool: str
    arguments: str
    id: str = ""
    output: str = ""
    outcome: Literal["returned", "failed", "unknown"] = "unknown"
    files: tuple[SourceFile, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class SourceMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of a person or a reply.

    Attributes:
        id: The program's own id, unique in the conversation.
        reply: True for a reply of the assistant.
        text: The text. It has no lone surrogates.
        at: When it was written (RFC 3339, UTC); empty if unknown.
        parent: The id of the message before it; empty for the first one.
        model: The model of a reply.
        reasoning: The visible reasoning of a reply.
        calls: The calls of tools that a reply ends with. Such a reply may have no text.
        files: The files of a person's message, which may then have no text.
        attachments: Those of them that are stored here.
    """

    id: str
    reply: bool
    text: str
    at: str = ""
    parent: str = ""
    model: str = ""
    reasoning: str = ""
    calls: tuple[SourceCall, ...] = ()
    files: tuple[SourceFile, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class SourceConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as a tree of messages.

    Attributes:
        id: The program's own id, which is the same in a newer export.
        messages: The messages, each after its parent.
        leaf: The id of the last message of the branch that the program shows; empty for that of the last message.
        title: The title; empty if there is none.
        name: A name for people where it has no title, such as the key that the program uses.
        at: When it began (RFC 3339, UTC); empty for the time of its first message.
        archived: It is archived there.
    """

    id: str
    messages: tuple[SourceMessage, ...]
    leaf: str = ""
    title: str = ""
    name: str = ""
    at: str = ""
    archived: bool = False


class SourceNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note in Markdown. `path` is relative to the workspace and has been checked: it stays inside."""

    path: str
    text: str


class SourceFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact as an entry of a facts document (`plugins.facts.fact_export`), without validation."""

    entry: dict[str, object]


class SourceSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled text. `rule` is as a person types it: `every 30m`, a cron line, or a time. `zone` is the name of its time
    zone; empty for that of the gateway."""

    id: str
    rule: str
    text: str
    zone: str = ""
    name: str = ""


class SourceSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill: the name of its folder, and its files by their paths inside."""

    name: str
    files: dict[str, bytes]


class SourceRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route of messages to an agent: of a channel, and of one chat or sender if they are not empty."""

    agent: str
    channel: str
    chat: str = ""
    sender: str = ""


Kind: TypeAlias = Literal[
    "conversations", "messages", "notes", "facts", "schedules", "skills", "routes", "files", "settings"
]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not imported. `reason` completes "left out: "; `count` items share it, and `name` is one of them."""

    kind: Kind
    reason: str
    name: str = ""
    count: int = 1


SourceItem: TypeAlias = SourceConversation | SourceNote | SourceFact | SourceSchedule | SourceSkill | SourceRoute | LeftOut

Reader: TypeAlias = Callable[[Path], Iterator[SourceItem]]
