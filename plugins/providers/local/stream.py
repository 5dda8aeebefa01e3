"""One answer of a local model: what its subprocess says, as deltas, a reply, or the error that it means."""

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
from plugins.providers.local.prompt import chat_messages, held_to, sampling
from plugins.support.errors import BadRequest, ContextOverflow, StreamCut, Unreachable
from sessions.events.messages import Usage


async def start_worker(model: Path, *, window: int, threads: int | None, environment: Mapping[str, str]) -> Worker:
    """A subprocess that has loaded a model file; `window` in tokens. Raises Unreachable with the reason."""
    try:
        return await Worker.start(COMMAND, Load(model=str(model), window=window, threads=threads), environment)
    except (WorkerGone, OSError) as error:
        raise Unreachable(f"The local model cannot be used: {error}.") from None


async def answer(worker: Worker, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
    """What ChatProvider.stream promises, from a worker that does nothing else meanwhile."""
    text: list[str] = []
    try:
        form = request.options.response_format
        # Only the house's own instructions may be put in fewer words: a program's are what it wants done.
        messages = chat_messages(request.context, told_all=form is not None or request.purpose == "api")
        await worker.ask(messages, sampling(request.context) | held_to(form))
        while True:
            match await worker.hear():
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
                        f"The conversation is {tokens} tokens long; the local model reads {window} with its answer."
                    )
                case Refused(sentence=sentence):
                    raise BadRequest(f"The local model refuses this request: {sentence}")
                case Broke(sentence=sentence):
                    await worker.end()
                    raise WorkerGone(sentence)
                case never:
                    assert_never(never)
    except WorkerGone as gone:
        if text:
            raise StreamCut(f"The local model broke off: {gone}.") from None
        raise Unreachable(f"The local model does not answer: {gone}.") from None
    finally:
        worker.stop()


def _reply(text: str, model: str, done: Done) -> Reply:
    usage = Usage(input=done.input, output=done.output, cached=done.cached)
    return Reply(text=text, model=model, stop="end" if done.stop == "stop" else "length", usage=usage)
