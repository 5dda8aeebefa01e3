"""Sign-in: exchanges a token or a one-time link for a cookie that scripts cannot read. The list of signed-in browsers."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from aiohttp import web

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission
from gateway.auth.people_log import INVITATION, PeopleLog, PeopleRefused, PeopleUnusable
from gateway.auth.signed_tokens import COOKIE_SECONDS, LINK_SECONDS
from gateway.config.keys import Role
from gateway.config.settings import Settings
from gateway.http.request_bodies import SIGN_IN_SECONDS, BodyRefused, read_body
from gateway.http.responses import answer, not_admitted, refusal
from plugins.support.workspace import OWNER

_Body = TypeVar("_Body")

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
    """The sign-in endpoints. `server` is the program and its version, `people` uses invitations up."""

    def __init__(self, access: Access, server: str, people: PeopleLog) -> None:
        self._access = access
        self._people = people
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
        try:
            admission = await self._admitted(credentials, request.remote or "")
        except NotAuthorized as error:
            return not_admitted(error)
        before = access.caller_by_cookie(request)
        if before is not None and before.person == admission.person:  # so that signing out also ends the replaced cookie
            admission = before
        return await self._with_cookie(request, admission)

    async def _admitted(self, credentials: SignInPage, address: str) -> Admission:
        """Return the admission that a token, a link or an invitation grants. Raises NotAuthorized."""
        if not credentials.link:
            return self._access.admit(credentials.token.strip(), address)
        if not credentials.link.startswith(INVITATION):
            return self._access.admit_by_link(credentials.link, address)
        secret = credentials.link.removeprefix(INVITATION)
        try:
            person, _ = await self._people.join(secret, "")
        except PeopleRefused as error:
            self._access.count_wrong(secret, address)
            raise NotAuthorized(str(error)) from error
        except PeopleUnusable as error:
            raise NotAuthorized(str(error)) from error
        return self._access.admission_of(person)

    async def session(self, request: web.Request) -> web.Response:
        """Return who is signed in, or nobody, and renew an old cookie. Whom the reverse proxy names is signed in."""
        admission = self._access.caller_by_cookie(request)
        if admission is None and (person := self._access.named_by_proxy(request)):
            return await self._with_cookie(request, self._access.admission_of(person))
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
            secure=access.is_https(request),
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


class ListedPerson(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person in the list. `added` if they were added while the gateway ran; the others are in the configuration."""

    id: str
    name: str
    role: str
    added: bool = False
    since: str = ""
    disabled: bool = False
    invited: str = ""
    """When the open invitation expires (RFC 3339); empty if there is none."""


class NewPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to add a person, with a token or an invitation."""

    id: str
    name: str = ""
    role: Role = "member"
    invite: bool = False


class NewRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to change a role."""

    role: Role


class PeopleEndpoints:
    """The endpoints with which the owner adds, disables and removes people, and reads who did so."""

    def __init__(self, people: PeopleLog, settings: Settings) -> None:
        self._people = people
        self._settings = settings

    async def listed(self, _: web.Request, __: Admission) -> web.Response:
        """Return all people, and what was done about them, newest last."""
        try:
            stored = await self._people.stored()
        except PeopleUnusable as error:
            return refusal(503, "storage_failed", str(error))
        config = self._settings.current
        people = [
            ListedPerson(id=OWNER, name=(keys and keys.name) or OWNER, role=OWNER) for keys in [config.people.get(OWNER)]
        ]
        people += [
            ListedPerson(id=each, name=keys.name or each, role=keys.role)
            for each, keys in config.people.items()
            if each != OWNER
        ]
        people += [
            ListedPerson(
                id=each.id,
                name=each.name,
                role=each.role,
                added=True,
                since=each.since,
                disabled=each.disabled,
                invited=each.expires,
            )
            for each in stored.people.values()
        ]
        return answer(200, {"people": people, "trail": stored.trail})

    async def add(self, request: web.Request, admission: Admission) -> web.Response:
        """Add a person; the answer has their token, or the secret of an invitation, which is shown only here."""
        new = await _read(request, NewPerson)
        if isinstance(new, web.Response):
            return new
        act = self._people.invite if new.invite else self._people.add
        taken = self._settings.current.people
        return await _made(
            "invitation" if new.invite else "token",
            act(new.id, name=new.name, role=new.role, by=admission.person.id, taken=taken),
        )

    async def replace_token(self, request: web.Request, admission: Admission) -> web.Response:
        """Give a person a new token."""
        return await _made("token", self._people.replace_token(request.match_info["person"], admission.person.id))

    async def disable(self, request: web.Request, admission: Admission) -> web.Response:
        """Refuse a person from now on."""
        return await _made("", self._people.disable(request.match_info["person"], admission.person.id))

    async def enable(self, request: web.Request, admission: Admission) -> web.Response:
        """Admit a disabled person again."""
        return await _made("", self._people.disable(request.match_info["person"], admission.person.id, enable=True))

    async def change_role(self, request: web.Request, admission: Admission) -> web.Response:
        """Give a person another role."""
        new = await _read(request, NewRole)
        if isinstance(new, web.Response):
            return new
        return await _made("", self._people.change_role(request.match_info["person"], new.role, admission.person.id))

    async def remove(self, request: web.Request, admission: Admission) -> web.Response:
        """Remove a person; their conversations remain."""
        return await _made("", self._people.remove(request.match_info["person"], admission.person.id))


async def _read(request: web.Request, kind: type[_Body]) -> _Body | web.Response:
    """Return the body of a request, or the response that refuses it."""
    try:
        return msgspec.json.decode(await read_body(request, SHOWN_BYTES, SIGN_IN_SECONDS) or b"{}", type=kind)
    except BodyRefused as refused:
        return refused.response
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return refusal(400, "bad_request", f"{str(error)[:200]}.")


async def _made(name: str, change: Awaitable[str | None]) -> web.Response:
    """Answer with the secret that a change made, under a name, or with why it is not possible."""
    try:
        secret = await change
    except PeopleRefused as error:
        return refusal(400, "bad_request", str(error))
    except PeopleUnusable as error:
        return refusal(503, "storage_failed", str(error))
    return answer(200, {name: secret} if name else {})


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
