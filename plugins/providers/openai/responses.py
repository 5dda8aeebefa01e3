"""The second tongue of the `openai` provider: OpenAI's Responses API, in which a model's reasoning comes back to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.http.client import Timeouts, Transport
from plugins.http.sse import ServerSentEvent
from plugins.providers.hosted.openai_errors import meaning
from plugins.providers.openai.responses_request import Encoder
from plugins.providers.openai.responses_stream import StreamAccumulator
from plugins.support.http_errors import StatusRefused


class Responses:
    """One service's Responses API, for all sessions at once. `base` is its address, as `https://api.openai.com/v1`;
    `max_tokens` bounds an answer with its reasoning; `effort` is as the service has it."""

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
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`. `may_retry` is asked as by the transport.
        Where the service refuses what this model or this key cannot read, the same is asked once more without it."""
        while True:
            assembly = StreamAccumulator(request.model)
            try:
                async with aclosing(self._events(request, headers, assembly, may_retry)) as events:
                    async for event in events:
                        for delta in assembly.take(event.data):
                            yield delta
                break
            except StatusRefused as refused:
                if assembly.begun or not self._encoder.learns(request, refused.body):
                    raise meaning(refused.status, refused.body, model=request.model, after=refused.retry_after) from refused
        yield msgspec.structs.replace(assembly.reply(), compacted=self._encoder.leaves_out(request))

    def _events(
        self,
        request: ChatRequest,
        headers: Mapping[str, str],
        assembly: StreamAccumulator,
        may_retry: Callable[[StatusRefused], bool],
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of one answer, up to the one with which the assembly is done."""
        return self._transport.stream_events(
            self._url,
            headers=headers,
            body=self._encoder.body(request, max_tokens=self._max_tokens, effort=self._effort),
            timeouts=self._timeouts,
            until=lambda: assembly.done,
            said=lambda: assembly.said,
            may_retry=may_retry,
        )
