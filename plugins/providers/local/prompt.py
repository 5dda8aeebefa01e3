"""A context as a prompt for a small local model: plain chat messages, short instructions, no tools.

Such a model reads a prompt slowly, and its chat template supports only three roles that alternate.
"""

from __future__ import annotations

import re
from typing import Any

from plugins.api.chat import ResponseFormat
from plugins.support.errors import BadRequest
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.state.context import Context

INSTRUCTIONS = "You are a helpful AI assistant named Exuvia"
"""Replaces instructions that are longer than `MAX_INSTRUCTIONS`, in the form that the bundled model was trained with."""
MAX_INSTRUCTIONS = 600
"""The most characters of instructions that are passed on; more would take seconds to read."""
# Without a penalty the bundled model repeats one word until the limit.
_SAMPLING: dict[str, Any] = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.05, "max_tokens": 512}
_SUPPORTED = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens"}
    | {"repeat_penalty", "presence_penalty", "frequency_penalty"}
)
# The library recognizes a chat template's special tokens in any text, so a person or a file could pose as another role.
_ROLE_MARK = re.compile(r"([<\[])(?=\||/?s>|/?INST\]|(?:start|end)_of_turn>|<SYS>|</SYS>)")


def chat_messages(context: Context, *, full_instructions: bool = False) -> list[dict[str, str]]:
    """Return the context as messages with the roles `system`, `user` and `assistant`: the system's first, and no role twice
    in a row, because some templates refuse that. `full_instructions` keeps instructions of any length."""
    instructions = context.instructions
    if not instructions.strip() or (len(instructions) > MAX_INSTRUCTIONS and not full_instructions):
        instructions = INSTRUCTIONS
    messages = [{"role": "system", "content": _without_role_marks(instructions)}]
    for message in context.messages:
        role, text = _plain(message)
        if messages[-1]["role"] == role:
            messages[-1]["content"] += "\n\n" + text
        else:
            messages.append({"role": role, "content": text})
    return messages


def sampling(context: Context) -> dict[str, Any]:
    """Return the sampling parameters: the defaults, and the configured ones that apply. Raises BadRequest for an invalid
    `max_tokens`; other values are left to the library."""
    parameters = _SAMPLING | {name: value for name, value in context.parameters.items() if name in _SUPPORTED}
    if not isinstance(parameters["max_tokens"], int) or parameters["max_tokens"] < 1:
        raise BadRequest("The parameter max_tokens must be a positive integer.")
    return parameters


def response_constraint(form: ResponseFormat | None) -> dict[str, Any]:
    """Return the parameters that restrict the reply to a format: the library converts the schema to a grammar."""
    if form is None:
        return {}
    if form.schema is None:
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema}}}


def _plain(message: Message) -> tuple[str, str]:
    match message:
        case UserMessage():
            placeholders = [f"[{file.media}, {file.bytes} bytes, which you cannot see]" for file in message.attachments]
            return "user", _without_role_marks("\n".join([message.text, *placeholders]))
        case AssistantMessage():
            calls = [f"[called the tool {call.tool} with {call.arguments}]" for call in message.calls]
            return "assistant", _without_role_marks("\n".join([message.text, *calls] if message.text else calls))
        case ToolMessage():
            verb = "failed" if message.failed else "returned"
            return "user", _without_role_marks(f"[the tool {message.tool} {verb}]\n{message.text}")


def _without_role_marks(text: str) -> str:
    return _ROLE_MARK.sub(r"\1 ", text)
