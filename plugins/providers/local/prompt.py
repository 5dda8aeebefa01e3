"""What a small local model is shown of a context: plain chat messages, few words before them, and no tools.

Prompt tokens are what such a model is slow at, and its chat template knows only three roles that take turns.
"""

from __future__ import annotations

import re
from typing import Any

from plugins.api.chat import ResponseFormat
from plugins.support.errors import BadRequest
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.state.context import Context

INSTRUCTIONS = "You are a helpful AI assistant named Exuvia"
"""What stands in for instructions that are longer than `LONGEST`: the form that the bundled model was trained with."""
LONGEST = 600
"""Characters of instructions that are passed on as they are; more would take seconds to read."""
# Without a penalty the bundled model says one word over and over until its answer is full.
_SAMPLING: dict[str, Any] = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.05, "max_tokens": 512}
_KNOWN = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens"}
    | {"repeat_penalty", "presence_penalty", "frequency_penalty"}
)
# The library reads a chat template's marks out of any text, so a person or a file could speak as another role.
_ROLE_MARK = re.compile(r"([<\[])(?=\||/?s>|/?INST\]|(?:start|end)_of_turn>|<SYS>|</SYS>)")


def chat_messages(context: Context, *, told_all: bool = False) -> list[dict[str, str]]:
    """The context as messages with the roles `system`, `user` and `assistant`: first the system's, then never the same
    role twice in a row, because the templates of some models refuse that. `told_all` keeps instructions however long."""
    instructions = context.instructions
    if not instructions.strip() or (len(instructions) > LONGEST and not told_all):
        instructions = INSTRUCTIONS
    messages = [{"role": "system", "content": _harmless(instructions)}]
    for message in context.messages:
        role, text = _plain(message)
        if messages[-1]["role"] == role:
            messages[-1]["content"] += "\n\n" + text
        else:
            messages.append({"role": role, "content": text})
    return messages


def sampling(context: Context) -> dict[str, Any]:
    """How the model chooses its words: our defaults, and those of the configured parameters that mean something here.
    Raises BadRequest when `max_tokens` is no number of tokens; the others are left to the library to refuse."""
    chosen = _SAMPLING | {name: value for name, value in context.parameters.items() if name in _KNOWN}
    if not isinstance(chosen["max_tokens"], int) or chosen["max_tokens"] < 1:
        raise BadRequest("The parameter max_tokens must be a whole number above 0.")
    return chosen


def held_to(form: ResponseFormat | None) -> dict[str, Any]:
    """What has the library draw only words that keep to a form: it makes a grammar of the schema."""
    if form is None:
        return {}
    if form.schema is None:
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema}}}


def _plain(message: Message) -> tuple[str, str]:
    match message:
        case UserMessage():
            unseen = [f"[{file.media}, {file.bytes} bytes, which you cannot see]" for file in message.attachments]
            return "user", _harmless("\n".join([message.text, *unseen]))
        case AssistantMessage():
            calls = [f"[called the tool {call.tool} with {call.arguments}]" for call in message.calls]
            return "assistant", _harmless("\n".join([message.text, *calls] if message.text else calls))
        case ToolMessage():
            verb = "failed" if message.failed else "returned"
            return "user", _harmless(f"[the tool {message.tool} {verb}]\n{message.text}")


def _harmless(text: str) -> str:
    return _ROLE_MARK.sub(r"\1 ", text)
