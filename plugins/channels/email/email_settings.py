"""The settings of an email channel."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, NamedTuple

import msgspec

from plugins.support.addresses import FAULT, WebAddress, host_fault
from plugins.support.errors import SettingsRefused
from plugins.support.secrets import Secret

Security = Literal["auto", "tls", "starttls", "none"]

_Host = Annotated[str, msgspec.Meta(min_length=1, extra={FAULT: host_fault})]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=1.0)]
_Address = Annotated[str, msgspec.Meta(pattern=r"^[^\s@<>\"]+@[^\s@<>\"]+$")]


class OAuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Access by OAuth 2 instead of a password, as Microsoft requires it: a refresh token that was obtained once."""

    token_url: WebAddress
    client_id: str
    refresh_token: Secret
    client_secret: Secret | None = None
    scope: str = ""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of an email channel.

    Attributes:
        address: The assistant's address.
        name: The name that people see beside it.
        user: The user name for both servers; by default the address.
        password: The password for both servers.
        oauth: Used instead of a password.
        imap: The host of the IMAP server, with a port if it is not the usual one.
        imap_security: "tls", "starttls", "none" (on this machine only), or by the port: 993 is TLS, others STARTTLS.
        smtp: The host of the SMTP server, with a port if it is not 465.
        smtp_security: The same for it: 465 is TLS, others STARTTLS.
        ca_file: Certificates of authorities, as a PEM file, if the system's do not include the servers'.
        folder: The folder in which mails to the assistant arrive.
        sent: The folder for sent mails; by default the one that the server declares.
        save_sent: Save sent mails there. Turn it off if the SMTP server does so itself.
        authserv_id: The name under which the own mail server writes `Authentication-Results`.
        trust_from: Believe every sender, without such a field.
        replies_per_thread: Mails of one conversation that are accepted in a day.
        replies_per_sender: Mails of one sender that are accepted in a day.
        poll_seconds: Seconds between two looks at the folder, if the server has no IDLE.
    """

    address: _Address
    imap: _Host
    smtp: _Host
    name: str = "Exuvia"
    user: str = ""
    password: Secret | None = None
    oauth: OAuthSettings | None = None
    imap_security: Security = "auto"
    smtp_security: Security = "auto"
    ca_file: str = ""
    folder: str = "INBOX"
    sent: str = ""
    save_sent: bool = True
    authserv_id: str = ""
    trust_from: bool = False
    replies_per_thread: _Count = 100
    replies_per_sender: _Count = 300
    poll_seconds: _Seconds = 60.0


class Server(NamedTuple):
    """Where and how to connect to a server: `security` is "tls", "starttls" or "none"."""

    host: str
    port: int
    security: str


def server_of(key: str, host: str, security: Security, *, tls_port: int) -> Server:
    """Return the server of a setting. Raises SettingsRefused if passwords would cross a network unencrypted."""
    name, mark, port = host.rpartition(":")
    if not mark or not port.isdigit() or (name.count(":") == host.count(":") - 1 > 0 and not name.startswith("[")):
        name, port = host, str(tls_port)
    name = name.strip("[]")
    if security == "auto":
        security = "tls" if int(port) == tls_port else "starttls"
    if security == "none" and not _is_this_machine(name):
        raise SettingsRefused(f'{key}_security = "none" is possible on this machine only: use "tls" or "starttls".')
    return Server(name, int(port), security)


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_settings(settings: Settings) -> None:
    """Raise SettingsRefused if keys that belong together are missing."""
    if (settings.password is None) == (settings.oauth is None):
        raise SettingsRefused("Set either password or the table oauth.")
    if not settings.trust_from and not settings.authserv_id:
        raise SettingsRefused(
            "Set authserv_id to the name with which your mail server begins its fields Authentication-Results"
            " (docs/channels/email.md shows how to find it), or trust_from = true if only you can write to the address."
        )
