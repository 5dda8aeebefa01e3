"""Who may speak: tokens and attempts, and which hosts and origins a request may name.

A browser page of somebody else's can reach a local port. It cannot choose the `Origin` that the browser sends, nor, without
controlling the address, the `Host`; so the `Host` must be our own and the `Origin` the same (cross-site websockets, DNS
rebinding).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from gateway.auth.auth_throttle import AuthThrottle
from gateway.auth.people import Admission, People, mark_of
from gateway.auth.signed_tokens import SignedToken, TokenSigner
from plugins.support.workspace import OWNER

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class NotAuthorized(Exception):
    """The token names nobody, or comes from an address that must wait `retry_after` seconds; the text is a sentence."""

    def __init__(self, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Access:
    """The rules of one gateway. `port` is the one that is listened on; `hosts` and `origins` are allowed beside our own."""

    def __init__(
        self,
        people: People,
        attempts: AuthThrottle,
        passes: TokenSigner,
        *,
        host: str,
        port: int,
        hosts: Sequence[str],
        origins: Sequence[str],
    ) -> None:
        self._people = people
        self._attempts = attempts
        self._passes = passes
        self._watchers: list[Callable[[], None]] = []
        self._any_address = _is_wildcard(host)
        own = {*_LOOPBACK_NAMES, _in_url(host)}
        self._hosts = {_plain(f"{name}:{port}") for name in own} | {_plain(name) for name in hosts}
        if port in (80, 443):
            self._hosts |= {_plain(name) for name in own}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._port = port
        self.cookie = f"exuvia-{port}"
        """The name of a browser's cookie; with the port, since a browser has one set of cookies for all ports of a host."""

    # --- people -------------------------------------------------------------------------------------------------------

    def admit(self, token: str, address: str) -> Admission:
        """Whose token this is, which came from an IP address; NotAdmitted if it is nobody's. Only wrong tokens make an
        address wait, and only for those: behind one address there may be many, and one who guesses must not lock the
        others out. What keeps a guesser out is the length of the tokens."""
        if (admission := self._people.admit(token)) is not None:
            return admission
        self._count_wrong(token, address)
        raise NotAuthorized("The token is not this gateway's.")

    def admit_by_header(self, authorization: str, address: str) -> Admission:
        """As `admit`, by the header `Authorization`."""
        scheme, _, token = authorization.partition(" ")
        return self.admit(token.strip() if scheme.lower() == "bearer" else "", address)

    def still_admits(self, admission: Admission) -> bool:
        """Whether somebody who was let in would be let in now."""
        shown = admission.shown
        return self._people.still_admit(admission) and (shown is None or self._passes.counts(shown))

    def replace(self, people: People) -> None:
        """Let in these people from now on, and tell the watchers."""
        self._people = people
        self._tell()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called whenever somebody may be admitted no more."""
        self._watchers.append(watcher)

    def _tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    # --- browsers -----------------------------------------------------------------------------------------------------

    def link(self) -> str:
        """What a one-time link of the owner carries."""
        return self._passes.issue("link", OWNER, self._people.keys[OWNER])

    def admit_by_link(self, text: str, address: str) -> Admission:
        """Whom a one-time link names, which is used up by this. A wrong one is counted as a wrong token is. NotAdmitted."""
        shown = self._passes.read("link", text, self._people.keys.get)
        if shown is None:
            self._count_wrong(text, address)
            raise NotAuthorized("This link was used before, or is too old. Sign in with the token.")
        self._passes.use_up(shown)
        return self._people.named(shown.person)

    def cookie_for(self, admission: Admission) -> str:
        """A cookie for somebody who was let in, which renews the one that they showed."""
        person = admission.person.id
        return self._passes.issue("cookie", person, self._people.keys[person], admission.shown)

    def admit_by_cookie(self, text: str) -> Admission:
        """Whom a cookie names. NotAdmitted."""
        shown = self._passes.read("cookie", text, self._people.keys.get)
        if shown is None:
            raise NotAuthorized("This browser is not signed in any more.")
        return self._people.named(shown.person, shown)

    def ages(self, shown: SignedToken) -> bool:
        """Whether a cookie is so old that its browser should have a new one."""
        return self._passes.ages(shown)

    async def sign_out(self, shown: SignedToken) -> None:
        """Let a cookie count no more, nor any of its line, and tell the watchers. OSError if a restart will undo it."""
        try:
            await self._passes.sign_out(shown)
        finally:
            self._tell()

    def _count_wrong(self, secret: str, address: str) -> None:
        """Count a wrong token or link; NotAdmitted, saying for how long, where the address must wait."""
        self._refuse_waiting(address)
        if secret:
            self._attempts.wrong(address, mark_of(secret))
        self._refuse_waiting(address)

    def _refuse_waiting(self, address: str) -> None:
        if wait := math.ceil(self._attempts.wait(address)):
            raise NotAuthorized(f"Too many wrong tokens came from this address; try again in {wait} s.", wait)

    # --- names --------------------------------------------------------------------------------------------------------

    def allows_host(self, host: str | None) -> bool:
        """Whether a request's `Host` is one of ours."""
        if host is None:
            return False
        host = _plain(host)
        return host in self._hosts or (self._any_address and _is_address(host, self._port))

    def allows_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether a request's `Origin`, if it has one, is listed, or a page of the very `Host` that the request names."""
        if origin is None:
            return True
        return origin.lower().rstrip("/") in self._origins or self.is_own_page(origin, host)

    def is_own_page(self, origin: str, host: str | None) -> bool:
        """Whether an `Origin` is a page of the very `Host` that the request names, and that is ours."""
        origin = origin.lower().rstrip("/")
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}" or host is None:
            return False
        return _plain(parts.netloc) == _plain(host) and self.allows_host(host)


def _plain(authority: str) -> str:
    """A host with or without its port, in one spelling: lower case, no dot at the end of a name, IPv6 shortened."""
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
    """Whether a `Host` is a literal address with our port: no name, so no name can have been rebound."""
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
