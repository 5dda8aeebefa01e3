"""A reply of a local model: the messages of its subprocess as deltas, a reply, or an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import assert_never

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.providers.local.process import (
    COMMAND,
    Broke,
    Done,
    Load,
    Piece,
    Refused,
    TooLong,
    Vector,
    Worker,
    WorkerGone,
    Working,
)
from plugins.providers.local.prompt import chat_messages, response_constraint, sampling
from plugins.support.errors import BadRequest, ContextOverflow, StreamCut, Unreachable
from sessions.events.messages import Usage


async def start_worker(model: Path, *, window: int, threads: int | None, environment: Mapping[str, str]) -> Worker:
    """Return a subprocess that has loaded a model file; `window` in tokens. Raises Unreachable with the reason."""
    try:
        return await Worker.start(COMMAND, Load(model=str(model), window=window, threads=threads), environment)
    except (WorkerGone, OSError) as error:
        raise Unreachable(f"The local model cannot be used: {error}.") from None


async def answer(worker: Worker, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
    """Yield deltas and the reply of an idle worker; implements `ChatProvider.stream`."""
    text: list[str] = []
    try:
        form = request.options.response_format
        # Only the gateway's own instructions may be shortened, not those of an API client.
        messages = chat_messages(request.context, full_instructions=form is not None or request.purpose == "api")
        await worker.ask(messages, sampling(request.context) | response_constraint(form))
        while True:
            match await worker.receive():
                case Piece(text=piece):
                    text.append(piece)
                    yield Delta(piece)
                case Working() | Vector():
                    pass
                case Done() as done:
                    yield _reply("".join(text), request.model, done)
                    return
                case TooLong(tokens=tokens, window=window):
                    raise ContextOverflow(
                        f"The conversation has {tokens} tokens; the local model's window has {window}, with the reply."
                    )
                case Refused(sentence=sentence):
                    raise BadRequest(f"The local model refused this request: {sentence}")
                case Broke(sentence=sentence):
                    await worker.end()
                    raise WorkerGone(sentence)
                case never:
                    assert_never(never)
    except WorkerGone as error:
        if text:
            raise StreamCut(f"The local model failed: {error}.") from None
        raise Unreachable(f"The local model does not answer: {error}.") from None
    finally:
        worker.stop()


def _reply(text: str, model: str, done: Done) -> Reply:
    usage = Usage(input=done.input, output=done.output, cached=done.cached)
    return Reply(text=text, model=model, stop="end" if done.stop == "stop" else "length", usage=usage)
