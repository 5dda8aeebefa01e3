"""Errors in OpenAI's format, `{"error": {"message", "type", "param", "code"}}`, with the status codes of its API
reference.
"""

from __future__ import annotations

import math

import msgspec
from aiohttp import web

from gateway.auth.access import NotAuthorized
from gateway.http.request_bodies import BodyRefused
from gateway.http.responses import EXHAUSTED, answer
from gateway.http.uploads import UnknownAttachment
from gateway.support.errors import Busy, Conflict, DamagedSession, ModelUnknown, sentence_of
from gateway.support.resource_limits import is_exhaustion
from plugins.support.errors import ProviderError
from plugins.support.secrets import scrubbed
from sessions.events.errors import SessionsError

_SERVER = "server_error"


class ApiError(Exception):
    """A request that failed; the text is one sentence for a person.

    `kind`, `param` (the path of the invalid value) and `code` are those of OpenAI's error object. `retry_after` is in
    seconds. `again` is True if the client may send the same request again; None leaves that to the status.
    """

    def __init__(
        self,
        sentence: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        again: bool | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.again = again

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """The error object, for a response or an event stream."""
        return {"error": {"message": scrubbed(str(self)), "type": self.kind, "param": self.param, "code": self.code}}


def bad_request(sentence: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return an error for an invalid request (400); `param` is the path of the invalid value."""
    return ApiError(sentence, param=param, code=code)


class _Meaning(msgspec.Struct, frozen=True):
    status: int
    kind: str
    code: str


_PROVIDERS = {
    "context_overflow": _Meaning(400, "invalid_request_error", "context_length_exceeded"),
    "rate_limited": _Meaning(429, "rate_limit_error", "rate_limit_exceeded"),
    "no_such_model": _Meaning(404, "invalid_request_error", "model_not_found"),
    "budget_spent": _Meaning(429, "insufficient_quota", "insufficient_quota"),
    "too_many_requests": _Meaning(429, "rate_limit_error", "rate_limit_exceeded"),
    "bad_request": _Meaning(400, "invalid_request_error", "bad_request"),
}
"""Status and type for a provider's failure, by its code. All others are the gateway's own errors: a 401 for the provider's
key would make the client doubt its own."""


def refusal_of(error: Exception) -> ApiError:
    """Return the error that a client is sent for an exception."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ProviderError):
        return failed_provider(error.code, sentence_of(error), error.retry_after)
    refused = ApiError("Internal error; see the gateway's log.", status=500, kind=_SERVER, code="internal")
    match error:
        case NotAuthorized():
            refused = ApiError(str(error), status=401, code="invalid_api_key", retry_after=error.retry_after)
        case BodyRefused():
            refused = _refused_body(error)
        case ModelUnknown():
            refused = ApiError(sentence_of(error), status=404, param="model", code="model_not_found")
        case UnknownAttachment():
            refused = bad_request(sentence_of(error), "messages")
        case Conflict():
            refused = ApiError(sentence_of(error), status=409, code="conflict", again=False)
        case Busy():
            refused = ApiError(sentence_of(error), status=429, kind="rate_limit_error", code="busy", retry_after=1)
        case DamagedSession():
            refused = ApiError(sentence_of(error), status=503, kind=_SERVER, code="storage_failed", again=False)
        case SessionsError():
            refused = ApiError(sentence_of(error), status=503, kind=_SERVER, code="storage_failed", retry_after=1)
        case _ if is_exhaustion(error):
            refused = ApiError(EXHAUSTED, status=503, kind=_SERVER, code="unavailable", retry_after=1)
        case _:
            pass
    return refused


def _refused_body(error: BodyRefused) -> ApiError:
    if error.status == web.HTTPTooManyRequests.status_code:
        return ApiError(str(error), status=error.status, kind="rate_limit_error", code=error.code, retry_after=1)
    code = "request_too_large" if error.status == web.HTTPRequestEntityTooLarge.status_code else None
    return ApiError(str(error), status=error.status, code=code)


def failed_provider(code: str, sentence: str, retry_after: float | None = None) -> ApiError:
    """Return the error for a provider's failure with this code."""
    meaning = _PROVIDERS.get(code, _Meaning(502, _SERVER, code))
    return ApiError(sentence, status=meaning.status, kind=meaning.kind, code=meaning.code, retry_after=retry_after)


def refused_response(refused: ApiError) -> web.Response:
    """Return an error as an HTTP response."""
    response = answer(refused.status, refused.body)
    if refused.status == web.HTTPUnauthorized.status_code:
        response.headers["WWW-Authenticate"] = "Bearer"
    if refused.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(refused.retry_after))
    if refused.again is not None:
        response.headers["X-Should-Retry"] = str(refused.again).lower()  # honoured by OpenAI's own clients
    return response
