"""Responses and errors in the gateway's format: JSON, never cached and never sniffed.

The errors of aiohttp get this format too: one sentence that names no other software.
"""

from __future__ import annotations

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gateway.auth.access import NotAuthorized
from gateway.support.errors import sentence_of
from gateway.support.resource_limits import is_exhaustion
from plugins.support.secrets import scrubbed
from sessions.events.errors import JournalDamaged, StorageFailed

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}

SERVER = "exuvia"
"""The header `Server`; aiohttp's default reveals its version and Python's."""

EXHAUSTED = "The gateway is out of memory or file descriptors; try again shortly."

_SENTENCES = {
    400: "This path does not accept such a request.",
    404: "Not found.",
    405: "This path does not accept this method.",
}

log = structlog.get_logger("exuvia.http")


def answer(status: int, value: object) -> web.Response:
    """Return a value as a JSON response."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, content_type="application/json", headers=HEADERS)


def refusal(status: int, code: str, sentence: str) -> web.Response:
    """Return an error response: `{"code", "message"}`, as in the websocket's `error`. A 503 has `Retry-After`."""
    response = answer(status, {"code": code, "message": scrubbed(sentence)})
    if status == web.HTTPServiceUnavailable.status_code:
        response.headers["Retry-After"] = "1"
    return response


def not_admitted(error: NotAuthorized) -> web.Response:
    """Return the response to a request without valid credentials; `Retry-After` says when to try again."""
    response = refusal(401, "unauthorized", str(error))
    response.headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


class HttpProtocol(web.RequestHandler):
    """A connection whose errors have our format, also those of unreadable requests."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a failed request.

        Raises:
            ConnectionError: The client is gone, or the response has already begun.
        """
        if request.transport is None:
            raise ConnectionError("The client has closed the connection.")
        if isinstance(exc, HttpProcessingError):
            log.debug("request_not_readable", reason=type(exc).__name__, address=request.remote)
            long = " A header line is too long." if isinstance(exc, LineTooLong) else ""
            response = refusal(status, "bad_request", f"This is not a valid HTTP request.{long}")
        else:
            response = _failed(request, status, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("The response had already begun.")
        response.headers["Server"] = SERVER
        response.force_close()
        return response


def _failed(request: web.BaseRequest, status: int, error: BaseException | None) -> web.Response:
    """Log an internal error and return the response."""
    if error is not None and is_exhaustion(error):
        log.error("resources_exhausted", method=request.method, path=request.path, reason=sentence_of(error))
        return refusal(503, "busy", EXHAUSTED)
    if isinstance(error, StorageFailed | JournalDamaged):  # such as a database that does not answer
        log.error("storage_not_usable", method=request.method, path=request.path, reason=sentence_of(error))
        return refusal(503, "storage_failed", sentence_of(error))
    log.error("request_failed", method=request.method, path=request.path, status=status, exc_info=error)
    return refusal(status, "internal", "Internal error; see the gateway's log.")


def refused(error: web.HTTPException) -> web.StreamResponse:
    """Return the response for an error that aiohttp raised, such as an unknown path; other exceptions are responses."""
    if error.status < web.HTTPBadRequest.status_code:
        return error
    code = "not_found" if error.status == web.HTTPNotFound.status_code else "bad_request"
    response = refusal(error.status, code, _SENTENCES.get(error.status, f"{error.reason}."))
    if allow := error.headers.get("Allow"):
        response.headers["Allow"] = allow
    return response


async def complete_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that all responses have, unless they are set already."""
    response.headers["Server"] = SERVER
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
