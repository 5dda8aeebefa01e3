"""Sign-in: exchanges a token or a one-time link for a cookie that scripts cannot read. The list of signed-in browsers."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from aiohttp import web

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission
from gateway.auth.signed_tokens import COOKIE_SECONDS, LINK_SECONDS
from gateway.http.request_bodies import SIGN_IN_SECONDS, BodyRefused, read_body
from gateway.http.responses import answer, not_admitted, refusal

_NOT_KEPT = (
    "You are signed out, but that could not be saved ({}): a copy of the cookie is valid again after a restart."
    " `exuvia token rotate` invalidates all cookies."
)
_NOT_KEPT_OTHER = (
    "Signed out until the gateway restarts: that could not be saved ({}). `exuvia token rotate` invalidates all cookies."
)


def invitation(access: Access, host: str, port: int) -> str:
    """Return the text that `exuvia run` prints: a link that signs the owner in once.

    The secret is in the fragment of the URL, which browsers do not send, so that it appears in no log.
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not listened on
    place = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    minutes = LINK_SECONDS // 60
    return f"\nOpen the console (the link works once, for {minutes} minutes):\n\n  http://{place}/#link={access.link()}\n\n"


SHOWN_BYTES = 16 * 1024
"""The maximum size of a sign-in body in bytes."""


class SignInPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a sign-in: a token or a link."""

    token: str = ""
    link: str = ""


class SignInEndpoints:
    """The sign-in endpoints. `server` is the program and its version."""

    def __init__(self, access: Access, server: str) -> None:
        self._access = access
        self._server = server

    async def sign_in(self, request: web.Request) -> web.Response:
        """Exchange a token or link for a cookie. Failures count for the rate limit; only our own page may call this."""
        access = self._access
        if not access.is_own_page(request.headers.get("Origin", ""), request.headers.get("Host")):
            return refusal(403, "forbidden", "Only the gateway's own page may sign in.")
        try:
            credentials = msgspec.json.decode(
                (await read_body(request, SHOWN_BYTES, SIGN_IN_SECONDS)) or b"{}", type=SignInPage
            )
        except BodyRefused as refused:
            return refused.response
        except UnicodeError:
            return refusal(400, "bad_request", "The body of the request is not UTF-8.")
        except (msgspec.MsgspecError, RecursionError) as error:
            return refusal(400, "bad_request", f"{str(error)[:200]}.")
        address = request.remote or ""
        try:
            admission = (
                access.admit_by_link(credentials.link, address)
                if credentials.link
                else access.admit(credentials.token.strip(), address)
            )
        except NotAuthorized as error:
            return not_admitted(error)
        before = access.caller_by_cookie(request)
        if before is not None and before.person == admission.person:  # so that signing out also ends the replaced cookie
            admission = before
        return await self._with_cookie(request, admission)

    async def session(self, request: web.Request) -> web.Response:
        """Return who is signed in, or nobody, and renew an old cookie."""
        admission = self._access.caller_by_cookie(request)
        if admission is None or admission.cookie is None:
            return answer(200, {"person": None, "server": self._server})
        if self._access.should_renew(admission.cookie):
            return await self._with_cookie(request, admission)
        await self._access.remember(request.cookies[self._access.cookie], _user_agent(request))
        return self._session_response(admission)

    async def sign_out(self, request: web.Request) -> web.Response:
        """Invalidate the cookie and those that renewed it, and close the connections that they opened."""
        access = self._access
        admission = access.caller_by_cookie(request)
        response = answer(200, {})
        if admission is not None and admission.cookie is not None:
            try:
                await access.sign_out(admission.cookie)
            except OSError as error:
                response = refusal(503, "storage_failed", _NOT_KEPT.format(error.strerror or error))
        response.del_cookie(access.cookie, path="/", httponly=True, samesite="Strict")
        return response

    def _session_response(self, admission: Admission) -> web.Response:
        return answer(200, {"person": admission.person, "server": self._server})

    async def _with_cookie(self, request: web.Request, admission: Admission) -> web.Response:
        access, response = self._access, self._session_response(admission)
        cookie = access.cookie_for(admission)
        await access.remember(cookie, _user_agent(request))
        response.set_cookie(
            access.cookie,
            cookie,
            max_age=COOKIE_SECONDS,
            path="/",
            httponly=True,
            samesite="Strict",
            # A proxy may terminate TLS; the browser's `Origin` shows it.
            secure=request.headers.get("Origin", "").startswith("https:"),
        )
        return response


def _user_agent(request: web.Request) -> str:
    return request.headers.get("User-Agent", "")


class SignedInBrowser(msgspec.Struct, frozen=True, omit_defaults=True):
    """A browser in the list: times are RFC 3339, `current` is the one that asks, `open` one that shows a page now."""

    id: str
    browser: str
    system: str
    at: str
    used: str
    current: bool = False
    open: bool = False


class SignInList:
    """The endpoints with which a person sees and ends their sign-ins."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def listed(self, _: web.Request, admission: Admission) -> web.Response:
        """Return the browsers in which the person is signed in."""
        own = admission.cookie.number if admission.cookie else ""
        browsers = [
            SignedInBrowser(
                id=each.number,
                browser=each.browser,
                system=each.system,
                at=_rfc3339(each.at),
                used=_rfc3339(each.used),
                current=each.number == own,
                open=self._access.is_open(each),
            )
            for each in self._access.sign_ins(admission.person.id)
        ]
        return answer(200, {"sign_ins": browsers})

    async def end(self, request: web.Request, admission: Admission) -> web.Response:
        """Sign out one browser."""
        return await self._ended(admission, request.match_info["number"])

    async def end_others(self, _: web.Request, admission: Admission) -> web.Response:
        """Sign out all browsers but the one that asks."""
        return await self._ended(admission, None)

    async def _ended(self, admission: Admission, number: str | None) -> web.Response:
        try:
            if not await self._access.end_sign_ins(admission, number):
                return refusal(404, "unknown_sign_in", "This browser is not signed in any more.")
        except OSError as error:
            return refusal(503, "storage_failed", _NOT_KEPT_OTHER.format(error.strerror or error))
        return answer(200, {})


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
