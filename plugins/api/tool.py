"""Tools: functions that the model can call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from plugins.support.workspace import NotesAccess
from sessions.events.messages import ToolDefinition


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A description of a call, as a person is shown it before it runs.

    Attributes:
        what: One line that says exactly what would be done: a quoted command, a URL, the path of a file.
        detail: The rest, shown in full below it: a script, a unified diff, the body of a request.
        why: Why a person is asked, as a sentence; empty for the usual reason, that the configuration says so.
        argv: The command, if it is a plain list of arguments. Rules match its beginning.
        host: The host that is contacted, if any. Rules match it.
        path: The file that is changed, relative to the workspace. Rules match it.
        state: A digest of everything else that the effect depends on, such as the present content of the file. If it differs
            when the call is about to run, the call is refused.
        rememberable: False if the answer must not be remembered for other calls.
        needed: False if the call needs no approval unless a rule about its command, host or file says so. Believed of
            built-in tools only.
    """

    what: str
    detail: str = ""
    why: str = ""
    argv: tuple[str, ...] = ()
    host: str = ""
    path: str = ""
    state: str = ""
    rememberable: bool = True
    needed: bool = True


def _discard(text: str) -> None:
    """Show nothing."""


def _unknown(url: str) -> bool:
    """Return False, because no conversation is known."""
    return False


async def _deny(question: ApprovalRequest) -> bool:
    """Deny, because there is nobody to ask."""
    return False


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a tool runs for.

    Attributes:
        session: The session's id.
        person: The id of the person whose message started the turn.
        turn: The number of the turn.
        call: The id of the call.
        group: Several people read this conversation. Do not return private data.
        agent: The name of the agent that the model acts for.
        channel: The channel that the turn's last message came over; empty for clients of the websocket.
        chat: The person's name for the conversation, such as `main`.
        reply_to: The channel's name of the chat that the answer goes to; empty for clients of the websocket.
        thread: The thread in that chat, if any.
        began: When the turn began (RFC 3339, UTC).
        names_url: Returns True if this conversation named a canonical URL: a person, a search result or a fetched page.
        progress: Shows a piece of the output to people while the tool runs. It is not recorded.
        notes: The notes that the person's role shows them: `all`, `own` without those for everybody, or `none`.
        ask: Asks a person in the middle of the run; returns True if they approve. Its deadline is suspended meanwhile.
    """

    session: str
    person: str
    turn: int
    call: str
    group: bool = False
    agent: str = "main"
    channel: str = ""
    chat: str = ""
    reply_to: str = ""
    thread: str = ""
    began: str = ""
    notes: NotesAccess = "all"
    names_url: Callable[[str], bool] = _unknown
    progress: Callable[[str], None] = _discard
    ask: Callable[[ApprovalRequest], Awaitable[bool]] = _deny


class OutputFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a tool returns to the person: its content, its media type such as `image/png`, and a name."""

    content: bytes
    media: str
    name: str = ""


class FileVersions(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace file that a tool changed, with its content before and after; None where there was no file."""

    path: str
    before: bytes | None
    after: bytes | None


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call.

    Attributes:
        text: The text for the model.
        attachments: Files for the person, shown below the text.
        exit_code: The exit code of a command, shown to the person.
        diff: The change of a file as a unified diff, shown to the person.
        changes: The workspace files that were changed, so that `/undo` can restore them.
    """

    text: str
    attachments: tuple[OutputFile, ...] = ()
    exit_code: int | None = None
    diff: str = ""
    changes: tuple[FileVersions, ...] = ()


@runtime_checkable
class Tool(Protocol):
    """A function that the model can call. One instance serves all sessions concurrently."""

    definition: ClassVar[ToolDefinition]
    """The name, description and JSON Schema that the model sees."""
    repeatable: ClassVar[bool]
    """True if running a call twice has the same effect as running it once. If unsure, False.

    After a crash, interrupted calls of repeatable tools run again.
    """

    def __init__(self, context: PluginContext) -> None: ...

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Run a call and return its result.

        The task may be cancelled at any await and then has five seconds to finish.

        Args:
            arguments: The arguments as a JSON object. They have not been validated against the schema.
            call: The call.

        Raises:
            ToolFailed: The call failed. The model sees the message.
        """
        ...


@runtime_checkable
class DescribesCalls(Protocol):
    """A tool that describes its calls for approval. Other tools are described by their name and arguments."""

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Describe a call before it is approved, and once more before it runs.

        Args:
            arguments: The arguments as a JSON object. They have not been validated against the schema.
            call: The call.

        Returns:
            The description; None if the call needs no approval, which is believed of built-in tools only.

        Raises:
            ToolFailed: The call would fail, for example because of its arguments. It is refused without a question.
        """
        ...


class ToolSource(Protocol):
    """A set of tools that changes while the gateway runs, such as those of an MCP server."""

    def tools(self) -> Mapping[str, Tool]:
        """Return the present tools by name, without I/O. Called at the start of every turn."""
        ...
