"""A provider's stream as it can be relied on: deltas and the one reply, or a ProviderError, whatever its code does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from gateway.conversations.answering import CALLS_LIMIT, REPLY_LIMIT
from gateway.errors import sentence_of
from gateway.models.choosing import ChosenModel
from gateway.models.sound_replies import sound
from plugins.contracts import ChatRequest, Delta, Reply
from plugins.errors import BadAnswer, ProviderError, StreamCut
from sessions.wire import carriable

log = structlog.get_logger("exuvia.openai_api")


async def heard(model: ChosenModel, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
    """What a model answers; one that says too much is cut there. Closing this closes the provider's stream."""
    size = 0
    try:
        async with aclosing(model.provider.stream(request)) as stream:  # type: ignore[type-var]
            async for part in stream:
                if isinstance(part, Reply):
                    yield _checked(sound(part))
                    return
                text = carriable(part.text)
                size += len(text.encode())
                yield Delta(text)
                if size > REPLY_LIMIT:
                    yield Reply(text="", model=model.model, stop="length")
                    return
    except ProviderError:
        raise
    except (Exception, SystemExit) as error:
        log.exception("provider_failed", provider=model.provider.name)
        raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
    raise StreamCut(f"The answer of {model.name} ended before its end.")


def _checked(reply: Reply) -> Reply:
    if len(reply.calls) > CALLS_LIMIT:
        raise BadAnswer(f"The model asked for {len(reply.calls)} tools at once; {CALLS_LIMIT} are taken.")
    return reply
