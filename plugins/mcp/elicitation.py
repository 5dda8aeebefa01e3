"""Questions of servers: each is asked as an approval, in the conversation of the call that it belongs to.

A person can agree or not. What a form asks for besides that is filled in from its own defaults; a form that needs more is
declined, with a note to the person, since a model must not answer for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import mcp_types
import msgspec

from plugins.api.tool import ApprovalRequest, ToolContext
from plugins.mcp.definitions import one_visible_line, visible

MESSAGE_LENGTH = 4_000
"""Characters of a question."""

FIELDS = 50
"""Fields of a form."""


async def answer_elicitation(
    calling: Callable[[], ToolContext | None], _: object, params: mcp_types.ElicitRequestParams
) -> mcp_types.ElicitResult | mcp_types.ErrorData:
    """Ask the person whose call a server works for, and return the answer.

    Args:
        calling: Returns the call; None if it is unknown.
        params: The question.
    """
    call = calling()
    if call is None:
        return mcp_types.ElicitResult(action="cancel")
    if isinstance(params, mcp_types.ElicitRequestURLParams):
        return await _ask_to_open(call, params)
    content = _filled_in(params.requested_schema)
    if content is None:
        call.progress(f"The server asks for data that cannot be entered here: {one_visible_line(params.message, 300)}\n")
        return mcp_types.ElicitResult(action="decline")
    shown = "\n".join([visible(params.message, MESSAGE_LENGTH), *([_json(content)] if content else [])])
    question = ApprovalRequest(
        what=one_visible_line(params.message, 300) or "The server asks for an agreement.",
        detail=shown,
        why="The MCP server asks this in the middle of the call. The values shown are sent to it if you approve.",
        rememberable=False,
    )
    if await call.ask(question):
        return mcp_types.ElicitResult(action="accept", content=content)
    return mcp_types.ElicitResult(action="decline")


async def _ask_to_open(call: ToolContext, params: mcp_types.ElicitRequestURLParams) -> mcp_types.ElicitResult:
    try:
        address = urlsplit(params.url)
    except ValueError:
        return mcp_types.ElicitResult(action="decline")
    if address.scheme not in ("http", "https") or not address.hostname or len(params.url) > MESSAGE_LENGTH:
        return mcp_types.ElicitResult(action="decline")
    question = ApprovalRequest(
        what=one_visible_line(params.url, MESSAGE_LENGTH),
        detail=visible(params.message, MESSAGE_LENGTH),
        why="The MCP server asks you to open this address yourself. Approve once you have done so.",
        host=address.hostname,
        rememberable=False,
    )
    return mcp_types.ElicitResult(action="accept" if await call.ask(question) else "decline")


def _filled_in(schema: Any) -> dict[str, Any] | None:
    """Return the values of a form that follow from the form alone; None if a required one does not."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > FIELDS:
        return None
    required = schema.get("required", [])
    content: dict[str, Any] = {}
    for name, field in properties.items():
        if not isinstance(field, dict):
            return None
        if "default" in field:
            content[name] = field["default"]
        elif isinstance(choices := field.get("enum"), list) and len(choices) == 1:
            content[name] = choices[0]
        elif field.get("type") == "boolean" and name in required:
            content[name] = True  # approving means yes
        elif name in required:
            return None
    return content


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
