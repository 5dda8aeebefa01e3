"""The keys of `[mcp.NAME]`, one table for each server of the Model Context Protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from plugins.support.addresses import WebAddress
from plugins.support.secrets import Secret

EXTRA = "exuvia[mcp]"
"""The extra that installs the SDK."""

_Text = Annotated[str, msgspec.Meta(min_length=1)]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class ToolFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.NAME.tools]`: the tools that are offered, by the server's own names; `*` matches any text.

    `allow` empty means all. `deny` wins.
    """

    allow: tuple[_Text, ...] = ()
    deny: tuple[_Text, ...] = ()

    def admits(self, tool: str) -> bool:
        """Return True if a tool may be offered."""
        allowed = not self.allow or any(fnmatchcase(tool, pattern) for pattern in self.allow)
        return allowed and not any(fnmatchcase(tool, pattern) for pattern in self.deny)


class OAuthKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.NAME.oauth]`: a client that is registered with the authorization server already.

    Without `client_id` the gateway registers itself, or presents `client_metadata_url` where the server accepts such URLs.
    The secret is sent to no authorization server but `issuer`.
    """

    client_id: _Text | None = None
    client_secret: Secret | None = None
    issuer: WebAddress | None = None
    client_metadata_url: WebAddress | None = None
    scopes: tuple[_Text, ...] = ()


class ServerKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.NAME]`: a server, which is either a program (`command`) or an address (`url`).

    `trust` believes what the server says about its tools: that a call may be repeated, and that a changed definition is
    wanted. `sandbox` runs the program in the sandbox of commands, where it may also read `readable`. `auth` is whether a
    login (`exuvia mcp login`) is used for `url`.
    """

    command: tuple[_Text, ...] = ()
    env: dict[str, Secret] = {}
    cwd: _Text | None = None
    sandbox: bool = False
    readable: tuple[_Text, ...] = ()
    url: WebAddress | None = None
    headers: dict[str, Secret] = {}
    auth: Literal["oauth", "none"] = "oauth"
    oauth: OAuthKeys = OAuthKeys()
    trust: bool = False
    tools: ToolFilter = ToolFilter()


def faults_of(servers: Mapping[str, ServerKeys]) -> Iterable[tuple[str, str]]:
    """Yield the key and the end of a sentence for each server that cannot be used as it is configured."""
    for name, keys in servers.items():
        key = f"mcp.{name}"
        if not _NAME.fullmatch(name):
            yield key, "needs a name of lower-case letters, digits, _ and - that begins with a letter, up to 32"
        if bool(keys.command) == bool(keys.url):
            yield key, "needs either a command or a url"
        if keys.url and (keys.env or keys.cwd or keys.sandbox):
            yield key, "has a url, to which env, cwd and sandbox do not apply"
        if keys.command and keys.headers:
            yield f"{key}.headers", "applies to a url only"
        if keys.oauth.client_secret and not (keys.oauth.client_id and keys.oauth.issuer):
            yield f"{key}.oauth", "has a client_secret, which needs client_id and issuer"
        # Tools are named NAME_tool: those of two such servers could have the same name.
        if longer := next((other for other in servers if other.startswith(f"{name}_")), None):
            yield f"mcp.{longer}", f"begins with the name of the server {name!r}; rename one of them"
