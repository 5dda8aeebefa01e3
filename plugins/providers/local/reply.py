"""A chat request to a small local model: its prompt, and the messages of its subprocess as deltas, a reply, or an error.

The prompt consists of plain chat messages and short instructions, without tools: such a model reads slowly, and its chat
template supports only three roles that alternate.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, assert_never

from plugins.api.chat import ChatRequest, Reply, ResponseFormat, StreamPart
from plugins.providers.hosted.think_tags import ThinkTags
from plugins.providers.local import process
from plugins.providers.local.process import Worker, WorkerGone
from plugins.support.errors import BadRequest, ContextOverflow, StreamCut, Unreachable
from sessions.events.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from sessions.state.context import Context

INSTRUCTIONS = "You are a helpful AI assistant named Exuvia"
"""Replaces instructions that are longer than `MAX_INSTRUCTIONS`, in the form that the bundled model was trained with."""
MAX_INSTRUCTIONS = 600
"""Maximum characters of instructions that are passed on; the model would take seconds to read more."""
# Without a penalty the bundled model repeats one word until the limit.
_SAMPLING: dict[str, Any] = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.05, "max_tokens": 512}
_SUPPORTED = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens"}
    | {"repeat_penalty", "presence_penalty", "frequency_penalty"}
)
# The library recognizes a chat template's special tokens in any text, so a person or a file could pose as another role.
_ROLE_MARK = re.compile(r"([<\[])(?=\||/?s>|/?INST\]|(?:start|end)_of_turn>|<SYS>|</SYS>)")


async def start_worker(model: Path, *, window: int, threads: int | None, environment: Mapping[str, str]) -> Worker:
    """Return a subprocess that has loaded a model file; `window` in tokens. Raises Unreachable with the reason."""
    try:
        return await Worker.start(
            process.COMMAND, process.Load(model=str(model), window=window, threads=threads), environment
        )
    except (WorkerGone, OSError) as error:
        raise Unreachable(f"The local model cannot be used: {error}.") from None


async def answer(  # noqa: PLR0912 - one arm for each message of the worker
    worker: Worker, request: ChatRequest
) -> AsyncGenerator[StreamPart, None]:
    """Yield deltas, reasoning and the reply of an idle worker; implements `ChatProvider.stream`."""
    text = ThinkTags()
    try:
        form = request.options.response_format
        # Only the gateway's own instructions may be shortened, not those of an API client.
        messages = chat_messages(request.context, full_instructions=form is not None or request.purpose == "api")
        await worker.ask(messages, sampling(request.context) | response_constraint(form))
        while True:
            match await worker.receive():
                case process.Piece(text=piece):
                    for part in text.feed(piece):
                        yield part
                case process.Working() | process.Vector():
                    pass
                case process.Done() as done:
                    for part in text.end():
                        yield part
                    yield _reply(text, request.model, done)
                    return
                case process.TooLong(tokens=tokens, window=window):
                    raise ContextOverflow(
                        f"The conversation has {tokens} tokens; the local model's window has {window}, with the reply."
                    )
                case process.Refused(sentence=sentence):
                    raise BadRequest(f"The local model refused this request: {sentence}")
                case process.Broke(sentence=sentence):
                    await worker.end()
                    raise WorkerGone(sentence)
                case never:
                    assert_never(never)
    except WorkerGone as error:
        if text.pieces:
            raise StreamCut(f"The local model failed: {error}.") from None
        raise Unreachable(f"The local model does not answer: {error}.") from None
    finally:
        worker.stop()


def _reply(text: ThinkTags, model: str, done: process.Done) -> Reply:
    usage = Usage(input=done.input, output=done.output, cached=done.cached)
    return Reply(text="".join(text.pieces), model=model, stop="end" if done.stop == "stop" else "length", usage=usage)


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
