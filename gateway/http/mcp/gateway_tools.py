"""The tools that the gateway offers to other agents over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec

from gateway.auth.people import ProgramGrant
from gateway.config.keys import Permission, RoleKeys
from gateway.conversations.commands.command_context import entry_of
from gateway.conversations.routing.chat import PAGE_BYTES
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.mcp.program_messages import CHANNEL, TEXT_LIMIT, ProgramMessage, ProgramMessages
from gateway.http.openai.api_errors import ApiError
from gateway.protocol.frames import FRAME_LIMIT, KEY_RULE
from gateway.protocol.slash_commands import parse_command
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.tool import Tool, ToolContext
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import convert
from sessions.events.codec import InvalidLine, decode, replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import MessageReceived
from sessions.events.messages import ToolDefinition
from sessions.state.truncation import head_and_tail

LONGEST_WAIT = 300
"""Seconds that `send_message` waits for an answer at most."""

PAGE = 50
"""Events in one page of `read_session`."""

_KEY = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and the permission that it needs."""

    definition: ToolDefinition
    needs: Permission


class ReadSession(msgspec.Struct, frozen=True):
    """Arguments of `read_session`."""

    session: str
    before: Annotated[int, msgspec.Meta(ge=1)] | None = None


class SendMessage(msgspec.Struct, frozen=True):
    """Arguments of `send_message`."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    session: str = "main"
    wait_seconds: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_WAIT)] = 60


def _definition(name: str, description: str, properties: dict[str, Any], required: Sequence[str] = ()) -> ToolDefinition:
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return ToolDefinition(name=name, description=description, parameters=parameters)


_SESSION = {"type": "string", "description": "The name of the conversation, such as `main`."}

LIST_SESSIONS = _definition("list_sessions", "List the person's conversations with the time of their last event.", {})
READ_SESSION = _definition(
    "read_session",
    f"Read the messages of a conversation, the newest {PAGE} events or those before an event, oldest first.",
    {"session": _SESSION, "before": {"type": "integer", "minimum": 1, "description": "The number of an event."}},
    ["session"],
)
SEND_MESSAGE = _definition(
    "send_message",
    "Send a message to the person's assistant in a conversation, and return its answer. The person sees both.",
    {
        "text": {"type": "string", "description": "The message; it must not be a command."},
        "session": _SESSION,
        "wait_seconds": {
            "type": "integer",
            "minimum": 0,
            "maximum": LONGEST_WAIT,
            "description": "How long to wait for the answer; later, read_session has it. Default 60.",
        },
    },
    ["text"],
)


class GatewayTools:
    """The tools of one gateway.

    Args:
        switchboard: The conversations.
        messages: Delivers messages to them.
        tools: The tools of the gateway by name, of which `memory_search` and `memory_get` are offered.
        refuses: Returns the error that says why no message is accepted now, or None.
        rights: Returns what a person may do: a program has no more tools and notes than they have.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        messages: ProgramMessages,
        tools: Callable[[str], Tool | None],
        refuses: Callable[[], Exception | None],
        rights: Callable[[str], RoleKeys],
    ) -> None:
        self._rights = rights
        self._switchboard = switchboard
        self._messages = messages
        self._tools = tools
        self._refuses = refuses

    def offered(self, grant: ProgramGrant) -> list[ToolDefinition]:
        """Return the tools that a token allows."""
        return [each.definition for each in self._all(self._rights(grant.person)) if each.needs in grant.allow]

    async def call(self, name: str, arguments: dict[str, Any], grant: ProgramGrant) -> str:
        """Call a tool and return its result. Raises ToolFailed with a sentence for the model."""
        if name not in {each.name for each in self.offered(grant)}:
            raise ToolFailed(f"There is no tool {name[:100]!r} for this token.")
        try:
            return await self._call(name, arguments, grant)
        except (GatewayError, SessionsError, ApiError) as error:
            raise ToolFailed(sentence_of(error)) from error

    async def _call(self, name: str, arguments: dict[str, Any], grant: ProgramGrant) -> str:
        match name:
            case "list_sessions":
                return await self._list_sessions(grant)
            case "read_session":
                return await self._read_session(convert(arguments, ReadSession), grant)
            case "send_message":
                return await self._send(convert(arguments, SendMessage), grant)
        tool = self._tools(name)
        if tool is None:
            raise ToolFailed("The memory is not available to models here (agent.workspace_access).")
        context = ToolContext(
            session=f"mcp-{grant.name}",
            person=grant.person,
            turn=0,
            call="mcp",
            channel=CHANNEL,
            notes=self._rights(grant.person).notes,
        )
        return (await tool.run(arguments, context)).text

    def _all(self, rights: RoleKeys) -> list[OfferedTool]:
        names = [name for name in ("memory_search", "memory_get") if rights.has_tool(name)]
        found = [tool for name in names if (tool := self._tools(name)) is not None]
        needs: dict[str, Permission] = {"memory_search": "search", "memory_get": "read"}
        return [
            *(OfferedTool(definition=tool.definition, needs=needs[tool.definition.name]) for tool in found),
            OfferedTool(definition=LIST_SESSIONS, needs="read"),
            OfferedTool(definition=READ_SESSION, needs="read"),
            OfferedTool(definition=SEND_MESSAGE, needs="send"),
        ]

    async def _list_sessions(self, grant: ProgramGrant) -> str:
        rows = await self._switchboard.sessions.current_sessions(grant.person)
        listed = [{"session": row.key, "title": row.title, "events": row.head, "at": row.at} for row in rows]
        return msgspec.json.encode({"sessions": listed}).decode()

    async def _read_session(self, wanted: ReadSession, grant: ProgramGrant) -> str:
        row = await self._switchboard.sessions.current(grant.person, wanted.session)
        if row is None:
            raise ToolFailed(f"There is no conversation {wanted.session[:100]!r}; list_sessions names them.")
        # Read from the log, whichever gateway has the conversation.
        before = min(wanted.before or row.head + 1, row.head + 1)
        first = max(1, before - PAGE)
        lines = await asyncio.to_thread(self._switchboard.sessions.log(row.session).lines, first, PAGE_BYTES)
        messages, size = [], 0
        for line in reversed(lines[: before - first]):
            try:
                recorded = decode(line)
            except InvalidLine as error:
                raise ToolFailed(f"The conversation cannot be read: {error}.") from error
            if (entry := entry_of(recorded)) is None:
                continue
            text = head_and_tail(entry.text, TEXT_LIMIT // 4)
            size += len(text)
            if size > TEXT_LIMIT:
                first = recorded.seq + 1
                break
            messages.append({"event": entry.seq, "at": entry.at, "by": entry.who, "text": text})
        answer = {"messages": messages[::-1], "earlier": first if first > 1 else None}
        return msgspec.json.encode(answer).decode()

    async def _send(self, wanted: SendMessage, grant: ProgramGrant) -> str:
        if (reason := self._refuses()) is not None:
            raise ToolFailed(sentence_of(reason))
        if not _KEY.fullmatch(wanted.session):
            raise ToolFailed(f"session must be {KEY_RULE}.")
        text = replace_surrogates(wanted.text)
        if len(text.encode()) > FRAME_LIMIT:
            raise ToolFailed(f"A message has at most {FRAME_LIMIT:,} bytes.")
        if parse_command(text) is not None:
            raise ToolFailed("A program cannot give commands; only the person can.")
        message = MessageReceived(
            id=f"mcp-{secrets.token_hex(16)}",
            client=f"mcp:{grant.name}"[:128],
            sender=grant.person,
            channel=CHANNEL,
            chat="private",
            text=text,
            attachments=(),
        )
        return await self._messages.send(grant.person, ProgramMessage(wanted.session, message, wanted.wait_seconds))
