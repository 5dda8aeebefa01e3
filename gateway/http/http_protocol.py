"""HTTP as aiohttp speaks it, with errors in the gateway's form: one sentence as JSON that names no software beneath it."""

from __future__ import annotations

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gateway.http.responses import HEADERS, refusal
from gateway.support.address_space import is_exhaustion
from gateway.support.errors import sentence_of

SERVER = "exuvia"
"""The header `Server`; aiohttp's own names its version and Python's."""

EXHAUSTED = "The gateway has no memory or no file descriptor left for this; try again shortly."

_SENTENCES = {
    400: "The request is not one that this path takes.",
    404: "There is nothing at this path.",
    405: "This path does not take that method.",
}

log = structlog.get_logger("exuvia.http")


class HttpProtocol(web.RequestHandler):
    """A connection whose errors are answered by us: also those of a request that could not be read."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that failed. Raises ConnectionError where there is nobody, or it is too late."""
        if request.transport is None:
            raise ConnectionError("The client has closed the connection.")
        if isinstance(exc, HttpProcessingError):
            log.debug("request_not_readable", reason=type(exc).__name__, address=request.remote)
            long = " A line of its head is too long." if isinstance(exc, LineTooLong) else ""
            response = refusal(status, "bad_request", f"This is not a valid HTTP request.{long}")
        else:
            response = _failed(request, status, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("The answer had already begun.")
        response.headers["Server"] = SERVER
        response.force_close()
        return response


def _failed(request: web.BaseRequest, status: int, error: BaseException | None) -> web.Response:
    """Log a fault of the gateway's own, and return the answer."""
    if error is not None and is_exhaustion(error):
        log.error("resources_exhausted", method=request.method, path=request.path, reason=sentence_of(error))
        return refusal(503, "busy", EXHAUSTED)
    log.error("request_failed", method=request.method, path=request.path, status=status, exc_info=error)
    return refusal(status, "internal", "The gateway failed to answer; its log says more.")


def refused(error: web.HTTPException) -> web.StreamResponse:
    """Return the answer for an error that aiohttp raised, as for a path that does not exist; other exceptions are answers
    by themselves."""
    if error.status < web.HTTPBadRequest.status_code:
        return error
    code = "not_found" if error.status == web.HTTPNotFound.status_code else "bad_request"
    response = refusal(error.status, code, _SENTENCES.get(error.status, f"{error.reason}."))
    if allow := error.headers.get("Allow"):
        response.headers["Allow"] = allow
    return response


async def complete_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Give an answer the headers that all have, where it does not say otherwise itself."""
    response.headers["Server"] = SERVER
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
