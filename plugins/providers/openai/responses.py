"""OpenAI's Responses API, in which a model's reasoning is sent back to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.http.client import Timeouts, Transport
from plugins.http.sse import ServerSentEvent
from plugins.providers.hosted.openai_errors import error_for
from plugins.providers.openai.responses_request import Encoder
from plugins.providers.openai.responses_stream import StreamAccumulator
from plugins.support.http_errors import StatusRefused


class Responses:
    """The Responses API of one server, for all sessions. `base` is its address, such as `https://api.openai.com/v1`;
    `max_tokens` limits a reply with its reasoning; `effort` is the service's effort level."""

    def __init__(
        self, transport: Transport, base: str, timeouts: Timeouts, max_tokens: int | None, effort: str | None
    ) -> None:
        self._transport = transport
        self._url = f"{base}/responses"
        self._timeouts = timeouts
        self._max_tokens = max_tokens
        self._effort = effort
        self._encoder = Encoder()

    async def stream(
        self, request: ChatRequest, headers: Mapping[str, str], may_retry: Callable[[StatusRefused], bool]
    ) -> AsyncGenerator[Delta | Reply, None]:
        """Send a request and yield deltas and the reply; implements `ChatProvider.stream`. `may_retry` is passed to the
        transport. If the service refuses optional parts that this model or key cannot use, the request is sent again without
        them."""
        while True:
            accumulator = StreamAccumulator(request.model)
            try:
                async with aclosing(self._events(request, headers, accumulator, may_retry)) as events:
                    async for event in events:
                        for delta in accumulator.take(event.data):
                            yield delta
                break
            except StatusRefused as refused:
                if accumulator.started or not self._encoder.adapt(request, refused.body):
                    raise error_for(
                        refused.status, refused.body, model=request.model, after=refused.retry_after
                    ) from refused
        yield msgspec.structs.replace(accumulator.reply(), compacted=self._encoder.is_compacted(request))

    def _events(
        self,
        request: ChatRequest,
        headers: Mapping[str, str],
        accumulator: StreamAccumulator,
        may_retry: Callable[[StatusRefused], bool],
    ) -> AsyncGenerator[ServerSentEvent, None]:
        return self._transport.stream_events(
            self._url,
            headers=headers,
            body=self._encoder.body(request, max_tokens=self._max_tokens, effort=self._effort),
            timeouts=self._timeouts,
            until=lambda: accumulator.done,
            progress=lambda: accumulator.progress,
            may_retry=may_retry,
        )
