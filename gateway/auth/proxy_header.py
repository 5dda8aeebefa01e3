"""Sign-in by a reverse proxy: the header in which it names the login of somebody who has signed in there.

A header can be sent by anybody who reaches the gateway. It counts only if the connection comes from one of the proxy's
addresses and the request has the secret that only the proxy knows, which keeps other programs of the same machine out.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from gateway.auth.token import HOW_TO_GENERATE, token_weakness
from gateway.support.errors import ConfigRefused
from plugins.support.workspace import OWNER, PERSON_ID

if TYPE_CHECKING:
    from gateway.config.keys import Config, SignInKeys

SECRET_HEADER = "X-Exuvia-Proxy-Secret"  # noqa: S105 - a name
"""The header with which the proxy proves that a request comes through it."""

_NOT_LOGINS = frozenset({"authorization", "cookie", "host", "origin", SECRET_HEADER.lower()})
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxyHeader:
    """The rules of one header. `people` are the ids of people by their logins."""

    def __init__(self, header: str, networks: tuple[_Network, ...], secret: str, people: Mapping[str, str]) -> None:
        self._header = header
        self._networks = networks
        self._secret = secret.encode()
        self._people = people

    def person(self, request: web.Request) -> str | None:
        """Return the person whom the proxy names, empty for a login that is nobody's; None if the proxy names nobody, or
        the request does not come through it."""
        logins = request.headers.getall(self._header, [])
        secrets = request.headers.getall(SECRET_HEADER, [])
        if not logins or len(secrets) != 1 or not self._is_proxy(request.remote or ""):
            return None
        if not hmac.compare_digest(secrets[0].encode("utf-8", "surrogateescape"), self._secret):
            return None
        # Of two headers one may be the client's.
        return self._people.get(logins[0].strip(), "") if len(logins) == 1 else ""

    def is_https(self, request: web.Request) -> bool:
        """Return True if the proxy received this request, for which `person` is not None, over TLS."""
        return request.headers.getall("X-Forwarded-Proto", []) == ["https"]

    def _is_proxy(self, remote: str) -> bool:
        try:
            address = ipaddress.ip_address(remote.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def proxy_header_of(config: Config) -> ProxyHeader | None:
    """Return the rules of `[sign_in]`; None if it names no header.

    Raises:
        ConfigRefused: A key is invalid; the error names it.
    """
    keys = config.sign_in
    if keys.header is None:
        return None
    networks: list[_Network] = []
    key, reason = _fault(keys, networks)
    if reason or keys.secret is None:
        raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)
    return ProxyHeader(keys.header, tuple(networks), keys.secret.reveal(), keys.people)


def _fault(keys: SignInKeys, networks: list[_Network]) -> tuple[str, str]:  # noqa: PLR0911 - one for each fault
    """Fill `networks`, and return the key that is invalid and the reason, both empty if all is valid."""
    if str(keys.header).lower() in _NOT_LOGINS:
        return "sign_in.header", f"is {keys.header}, which is not the name of a login"
    if keys.secret is None:
        return "sign_in.secret", f"is missing: the proxy must send it as {SECRET_HEADER}"
    if weakness := token_weakness(keys.secret.reveal()):
        return "sign_in.secret", f"{weakness}. {HOW_TO_GENERATE}"
    if not keys.addresses:
        return "sign_in.addresses", "is empty; name the addresses of the proxy"
    for text in keys.addresses:
        if fault := _fault_of_address(text, networks):
            return "sign_in.addresses", fault
    for login, person in keys.people.items():
        if person != OWNER and PERSON_ID.fullmatch(person) is None:
            return "sign_in.people", f"gives {login[:60]!r} the person {person[:60]!r}, which is no valid id"
    return "", ""


def _fault_of_address(text: str, networks: list[_Network]) -> str:
    try:
        networks.append(ipaddress.ip_network(text))
    except ValueError:
        return f"has {text[:60]!r}, which is no address or network such as 127.0.0.1 or 10.0.0.0/8"
    return f"has {text[:60]}, which is every address; name those of the proxy" if networks[-1].prefixlen == 0 else ""
