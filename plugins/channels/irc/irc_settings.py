"""The keys of `[channels.NAME]` with `kind = "irc"`."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from plugins.support.errors import SettingsRefused
from plugins.support.secrets import Secret

_NICK = re.compile(r"[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]{0,49}")


class IrcSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server, and how the assistant appears there.

    Attributes:
        server: The host, or host:port. The port is 6697 by default, without TLS 6667.
        nick: The assistant's nick. If it is taken, underscores are appended until it is free again.
        rooms: The channels that the assistant joins, such as "#tea".
        tls: Encrypt the connection, and check the certificate.
        certificates: A file of certificates in PEM that are trusted besides those of the system.
        user: The name of the assistant's account at the server, for `password`; by default its nick.
        password: The password of that account, for a login by SASL PLAIN.
        server_password: The password of the server itself, if it has one.
        accounts: Senders are the accounts in which people are logged in, and not their nicks, which anybody may take.
        flood_seconds: Seconds between two lines after the first five, so that the server does not disconnect the assistant.
        unknown: What to do with a reply if the connection ended before the server had confirmed it: send it "again", marked,
            or "drop" it.
    """

    server: str = ""
    nick: str = "exuvia"
    rooms: tuple[str, ...] = ()
    tls: bool = True
    certificates: str | None = None
    user: str | None = None
    password: Secret | None = None
    server_password: Secret | None = None
    accounts: bool = False
    flood_seconds: float = 2.0
    unknown: Literal["again", "drop"] = "again"

    def address(self) -> tuple[str, int]:
        """Return host and port of the server.

        Raises:
            SettingsRefused: There is none, or the port is not a number.
        """
        host, _, port = (
            self.server.rpartition(":") if self.server.count(":") == 1 or "]:" in self.server else (self.server, "", "")
        )
        host = host.strip("[]")
        if not host or not (port or "1").isdecimal():
            raise SettingsRefused("`server` must be the server's host, or host:port.")
        return host, int(port or (6697 if self.tls else 6667))

    def login(self) -> str:
        """Return the name of the assistant's account."""
        return self.user or self.nick

    def check(self) -> None:
        """Raise SettingsRefused if a name is not valid, or a password would be sent in the clear."""
        self.address()
        if not _NICK.fullmatch(self.nick):
            raise SettingsRefused(f"{self.nick!r} is not a valid nick; change `nick`.")
        for room in self.rooms:
            if not re.fullmatch(r"[#&+!][^\x00-\x20,\x07:]{0,199}", room):
                raise SettingsRefused(f'{room!r} is not the name of a channel; `rooms` must have names such as "#tea".')
