"""Access rules: tokens, cookies, one-time links, and the hosts and origins that a request may name.

A page from another site can reach a local port. It cannot choose the `Origin` that the browser sends nor, without
controlling the address, the `Host`. So the `Host` must be one of ours and the `Origin` the same: this stops cross-site
websockets and DNS rebinding.

A browser sends a cookie with every request to its host, whichever page makes it. So a cookie is accepted only if the browser
reports that the page is the gateway's own. `same-site` is not enough: it includes other programs on the same host.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from gateway.auth.limits import AuthThrottle
from gateway.auth.people import Admission, People, ProgramGrant, token_digest
from gateway.auth.relay_tokens import RELAYED, RelayTokens
from gateway.auth.sign_ins import SignIn, SignIns
from gateway.auth.signed_tokens import SignedOut, SignedToken, TokenSigner, key_mark
from gateway.config.keys import GatewayKeys
from plugins.api.context import Clock
from plugins.support.workspace import OWNER

_READING = ("GET", "HEAD")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class NotAuthorized(Exception):
    """The credentials are invalid, or their address must wait `retry_after` seconds before the next attempt."""

    def __init__(self, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Access:
    """The access rules of one gateway, which listens on `port`. `attempts` limits the rate of wrong tokens."""

    def __init__(
        self,
        people: People,
        attempts: AuthThrottle,
        signer: TokenSigner,
        keys: GatewayKeys,
        port: int,
        *,
        sign_ins: SignIns,
    ) -> None:
        self._people = people
        self._attempts = attempts
        self._signer = signer
        self._sign_ins = sign_ins
        self._relay_tokens: RelayTokens | None = None
        self._watchers: list[Callable[[], None]] = []
        self._any_address = _is_wildcard(keys.host)
        own = {*_LOOPBACK_NAMES, _in_url(keys.host)}
        self._hosts = {_normalized(f"{name}:{port}") for name in own} | {_normalized(name) for name in keys.allowed_hosts}
        if port in (80, 443):
            self._hosts |= {_normalized(name) for name in own}
        self._origins = {origin.lower().rstrip("/") for origin in keys.allowed_origins}
        self._port = port
        self.cookie = f"exuvia-{port}"
        """The name of the session cookie. It includes the port because browsers share cookies between all ports of a
        host."""

    @classmethod
    def of_gateway(
        cls, people: People, keys: GatewayKeys, port: int, clock: Clock, *, signed_out: Path, sign_ins: Path
    ) -> Access:
        """Return the access rules for the port that is listened on; `signed_out` and `sign_ins` are the files in which
        sign-outs and signed-in browsers are stored."""

        def now() -> float:
            return clock.now().timestamp()

        signer = TokenSigner(now, SignedOut(signed_out, now))
        return cls(people, AuthThrottle(clock.monotonic), signer, keys, port, sign_ins=SignIns(sign_ins, now))

    # --- requests -----------------------------------------------------------------------------------------------------

    def caller(self, request: web.Request) -> Admission:
        """Return the admission of a request's sender, by the header `Authorization` or else by the cookie.

        Raises:
            NotAuthorized: Neither grants access.
        """
        if (person := self._relayed_person(request)) is not None:
            return self._people.admission_of(person)
        if "Authorization" in request.headers or (admission := self.caller_by_cookie(request)) is None:
            return self.admit_by_header(request.headers.get("Authorization", ""), request.remote or "")
        return admission

    def accept_relayed(self, tokens: RelayTokens) -> None:
        """Accept requests that other gateways relay for people whom they have admitted, by these tokens."""
        self._relay_tokens = tokens

    def is_relayed(self, request: web.Request) -> bool:
        """Return True if another gateway has sent a request."""
        return self._relayed_person(request) is not None

    def _relayed_person(self, request: web.Request) -> str | None:
        if self._relay_tokens is None or (token := request.headers.get(RELAYED)) is None:
            return None
        person = self._relay_tokens.read(token)
        return person if person in self._people.keys else None

    def program(self, request: web.Request) -> ProgramGrant | None:
        """Return what the header `Authorization` grants to a program of `[mcp_access]`; None if it is no program's token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self._people.program(token.strip()) if scheme.lower() == "bearer" else None

    def caller_by_cookie(self, request: web.Request) -> Admission | None:
        """Return the admission that a request's cookie grants, if one of our own pages sent it; None otherwise."""
        cookie = request.cookies.get(self.cookie)
        if cookie is None or not self._is_from_own_page(request):
            return None
        try:
            admission = self.admit_by_cookie(cookie)
        except NotAuthorized:
            return None
        named = self.named_by_proxy(request)
        return admission if named is None or named == admission.person.id else None

    def named_by_proxy(self, request: web.Request) -> str | None:
        """Return the person whom the reverse proxy of `[sign_in]` names in a request of one of our own pages, empty for a
        login that is nobody's; None if it names nobody."""
        header = self._people.proxy_header
        if header is None or (person := header.person(request)) is None or not self._is_from_own_page(request):
            return None
        return person if person in self._people.keys else ""

    def is_https(self, request: web.Request) -> bool:
        """Return True if the browser has made this request of one of our own pages over TLS, which a proxy may terminate."""
        if request.headers.get("Origin", "").startswith("https:"):
            return True
        header = self._people.proxy_header
        return header is not None and header.person(request) is not None and header.is_https(request)

    def _is_from_own_page(self, request: web.Request) -> bool:
        """Return True if the browser reports that one of our pages made the request. Only reads may lack an `Origin`."""
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("Origin")
        if origin is None:
            return request.method in _READING and "Upgrade" not in request.headers
        return self.is_own_page(origin, request.headers.get("Host"))

    # --- people -------------------------------------------------------------------------------------------------------

    def admit(self, token: str, address: str) -> Admission:
        """Return the admission that a token from an IP address grants.

        An address must wait only after wrong tokens, and only before further wrong ones: many people may share an address,
        and one who guesses must not lock out the others. What protects from guessing is the length of the tokens.

        Raises:
            NotAuthorized: The token is invalid.
        """
        if (admission := self._people.admit(token)) is not None:
            return admission
        self._count_wrong(token, address)
        raise NotAuthorized("Invalid token.")

    def admit_by_header(self, authorization: str, address: str) -> Admission:
        """Return the admission that a header `Authorization` grants; see `admit`."""
        scheme, _, token = authorization.partition(" ")
        return self.admit(token.strip() if scheme.lower() == "bearer" else "", address)

    def still_admits(self, admission: Admission) -> bool:
        """Return True if this admission is still valid."""
        cookie = admission.cookie
        return self._people.still_admit(admission) and (cookie is None or self._signer.is_valid(cookie))

    def replace(self, people: People) -> None:
        """Replace the people who may use the gateway and notify the watchers."""
        self._people = people
        self._notify()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever an admission may have become invalid."""
        self._watchers.append(watcher)

    def _notify(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    # --- browsers -----------------------------------------------------------------------------------------------------

    def link(self) -> str:
        """Return the secret of a new one-time link for the owner."""
        return self._signer.issue("link", OWNER, self._people.keys[OWNER])

    def admit_by_link(self, text: str, address: str) -> Admission:
        """Return the admission that a one-time link grants, and invalidate the link. A wrong link counts like a wrong token.

        Raises:
            NotAuthorized: The link is invalid, expired or was used before.
        """
        link = self._signer.read("link", text, self._people.keys.get)
        if link is None:
            self._count_wrong(text, address)
            raise NotAuthorized("This link was used before or has expired. Sign in with the token.")
        self._signer.use_up(link)
        return self._people.admission_of(link.person)

    def admission_of(self, person: str) -> Admission:
        """Return the admission of a person who was just admitted by other means."""
        return self._people.admission_of(person)

    def count_wrong(self, secret: str, address: str) -> None:
        """Count a wrong invitation like a wrong token. Raises NotAuthorized if the address must wait."""
        self._count_wrong(secret, address)

    def cookie_for(self, admission: Admission) -> str:
        """Return a new cookie for an admitted person. It renews the cookie that they sent, if any."""
        person = admission.person.id
        return self._signer.issue("cookie", person, self._people.keys[person], admission.cookie)

    def admit_by_cookie(self, text: str) -> Admission:
        """Return the admission that a cookie grants.

        Raises:
            NotAuthorized: The cookie is invalid, expired or signed out.
        """
        cookie = self._signer.read("cookie", text, self._people.keys.get)
        if cookie is None:
            raise NotAuthorized("This browser is no longer signed in.")
        self._sign_ins.use(cookie)
        return self._people.admission_of(cookie.person, cookie)

    def should_renew(self, cookie: SignedToken) -> bool:
        """Return True if a cookie is old enough to be renewed."""
        return self._signer.should_renew(cookie)

    async def sign_out(self, cookie: SignedToken) -> None:
        """Invalidate a cookie and every cookie that renewed it, and notify the watchers.

        Raises:
            OSError: The sign-out could not be saved; a restart will undo it.
        """
        try:
            await self._signer.sign_out(cookie)
        finally:
            self._notify()
            await self._sign_ins.remove(cookie.person, frozenset({cookie.number}))

    async def remember(self, cookie: str, user_agent: str) -> None:
        """Add the browser that has this valid cookie to the list of its person, or note its use."""
        found = self._signer.read("cookie", cookie, self._people.keys.get)
        if found is not None:
            await self._sign_ins.add(found, key_mark(self._people.keys[found.person]), user_agent)

    def connected(self, admission: Admission) -> AbstractContextManager[None]:
        """Note that a page of the browser is connected while the block runs."""
        return nullcontext() if admission.cookie is None else self._sign_ins.connected(admission.cookie)

    def is_open(self, sign_in: SignIn) -> bool:
        """Return True if a page of this browser is connected."""
        return self._sign_ins.is_open(sign_in.number)

    def sign_ins(self, person: str) -> list[SignIn]:
        """Return the browsers in which a person is signed in, last used first."""
        return self._sign_ins.of(person, key_mark(self._people.keys[person]))

    async def forget_browsers(self, person: str) -> None:
        """Remove all browsers of a person from the list of those that are signed in."""
        await self._sign_ins.forget(person)

    async def end_sign_ins(self, admission: Admission, number: str | None = None) -> bool:
        """Sign out one browser of a person, or all but the one that asks, and notify the watchers. Return False if the
        person has no such browser.

        Raises:
            OSError: The sign-out could not be saved; a restart will undo it.
        """
        person, own = admission.person.id, "" if admission.cookie is None else admission.cookie.number
        listed = {each.number: each for each in self.sign_ins(person)}
        if number is not None and number not in listed:
            return False
        ended = frozenset(listed) - {own} if number is None else frozenset({number})
        try:
            if number is None:
                await self._signer.sign_out_others(person, own, ended)
            else:
                await self._signer.sign_out(SignedToken(person, listed[number].until, number))
        finally:
            self._notify()
            await self._sign_ins.remove(person, ended)
        return True

    def _count_wrong(self, secret: str, address: str) -> None:
        """Count a wrong token or link.

        Raises:
            NotAuthorized: The address must wait.
        """
        self._refuse_waiting(address)
        if secret:
            self._attempts.count_wrong(address, token_digest(secret))
        self._refuse_waiting(address)

    def _refuse_waiting(self, address: str) -> None:
        if wait := math.ceil(self._attempts.wait(address)):
            raise NotAuthorized(f"Too many wrong tokens from this address. Try again in {wait} s.", wait)

    # --- names --------------------------------------------------------------------------------------------------------

    def allows_host(self, host: str | None) -> bool:
        """Return True if a request's `Host` is one of ours."""
        if host is None:
            return False
        host = _normalized(host)
        return host in self._hosts or (self._any_address and _is_address(host, self._port))

    def would_allow_host(self, host: str | None, keys: GatewayKeys) -> bool:
        """Return True if a request's `Host` would be one of ours after a restart with other keys."""
        port = keys.port or self._port
        then = Access(self._people, self._attempts, self._signer, keys, port, sign_ins=self._sign_ins)
        return then.allows_host(host)

    def allows_origin(self, origin: str | None, host: str | None) -> bool:
        """Return True if a request's `Origin` is absent, listed, or the same as the request's `Host`."""
        if origin is None:
            return True
        return origin.lower().rstrip("/") in self._origins or self.is_own_page(origin, host)

    def is_own_page(self, origin: str, host: str | None) -> bool:
        """Return True if an `Origin` is the same as the request's `Host`, and that is one of ours."""
        origin = origin.lower().rstrip("/")
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}" or host is None:
            return False
        return _normalized(parts.netloc) == _normalized(host) and self.allows_host(host)


def _normalized(authority: str) -> str:
    """Normalize a host with or without a port: lower case, no trailing dot, IPv6 shortened."""
    authority = authority.lower()
    name, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal():
        name, colon, port = authority, "", ""
    if name.startswith("[") and name.endswith("]"):
        try:
            name = f"[{ipaddress.IPv6Address(name[1:-1])}]"
        except ValueError:
            return authority
    return f"{name.removesuffix('.')}{colon}{port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _is_address(host: str, port: int) -> bool:
    """Return True if a `Host` is an IP address with our port. Without a name, DNS rebinding is impossible."""
    name, _, given = host.rpartition(":")
    if given != str(port):
        return False
    try:
        if name.startswith("[") and name.endswith("]"):
            ipaddress.IPv6Address(name[1:-1])
        else:
            ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True
