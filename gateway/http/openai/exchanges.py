"""Reads the body of a request, and writes its answer while the client is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import msgspec
import structlog
from aiohttp import web

from gateway.http.event_stream import ClientGone, while_connected
from gateway.http.openai.api_errors import ApiError, refusal_of
from gateway.http.openai.response_writer import EventStreamWriter, JsonResponseWriter, ResponseWriter
from gateway.http.openai.schema import decode_body
from gateway.http.request_bodies import BodyRefused, BodyShare, read_body
from gateway.support.errors import GatewayError, sentence_of
from plugins.support.errors import ProviderError
from sessions.events.errors import SessionsError

BODY_BYTES = 24 * 1024 * 1024
"""The maximum size of a body in bytes: more than the pictures of the largest request in base64."""

BODY_SECONDS = 300.0
"""Seconds for a whole body."""

LARGE = 256 * 1024
"""A body of at least this many bytes is decoded in a thread, because decoding pictures would block the event loop."""

CLIENT_ERRORS = (ApiError, BodyRefused, GatewayError, ProviderError, SessionsError)
"""Errors whose sentences are sent to the client."""

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)

Answer: TypeAlias = Callable[[ResponseWriter], Coroutine[Any, Any, None]]
"""Writes the answer to a request."""

log = structlog.get_logger("exuvia.openai_api")


async def write_json(request: web.Request, writer: JsonResponseWriter, write: Answer) -> web.StreamResponse:
    """Answer with one JSON object, which `write` writes."""
    await while_connected(request, write(writer))
    assert writer.response is not None
    return writer.response


async def write_stream(request: web.Request, streamed: EventStreamWriter, write: Answer) -> web.StreamResponse:
    """Stream an answer, which `write` writes. Errors before its beginning are raised; later ones are sent in the stream."""
    stream = streamed.stream
    try:
        await stream.while_connected(write(streamed))
    except ClientGone:
        raise
    except Exception as error:
        if stream.response is None:
            raise
        if not isinstance(error, CLIENT_ERRORS):
            log.exception("api_failed", path=request.match_info["path"], reason=sentence_of(error))
        await streamed.fail(refusal_of(error))
    assert stream.response is not None
    return stream.response


async def read_json(request: web.Request, form: type[B], share: BodyShare) -> tuple[B, int]:
    """Read and decode the body of a request; return it and its size in bytes.

    Raises:
        BodyRefused: The body exceeds a limit.
        ApiError: The body does not match the schema.
    """
    data = await read_body(request, BODY_BYTES, BODY_SECONDS, share)
    return await in_thread_if_large(len(data), lambda: decode_body(data, form)), len(data)


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Process a body of `size` bytes, in a thread if that may take long."""
    return work() if size < LARGE else await asyncio.to_thread(work)
