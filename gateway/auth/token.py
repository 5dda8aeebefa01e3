"""The gateway's token: where it comes from, when it is generated, and which tokens are rejected."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from pathlib import Path

import structlog

from gateway.config.keys import Config
from gateway.config.secret_references import read_credential, read_secret_file
from gateway.config.sources import Sources
from gateway.support.errors import ConfigRefused, StartRefused
from gateway.support.home import Home
from plugins.support.secrets import Secret, hide
from sessions.files.fsync import replace_file, write_new

SHORTEST = 24
"""The minimum length of a token; a random one then has more than 128 bits."""

_PLACEHOLDERS = ("changeme", "replaceme", "yourtoken", "mytoken", "placeholder", "tokenhere", "insertyour", "secrettoken")
_FEWEST_DIFFERENT = 6

HOW_TO_GENERATE = "Generate one with `python3 -c 'import secrets; print(secrets.token_urlsafe(32))'`"
"""How to replace a weak token; a sentence without its full stop."""

log = structlog.get_logger("exuvia.token")


def gateway_token(home: Home, config: Config, environment: Mapping[str, str]) -> Secret:
    """Return the gateway's token, hidden from logs from here on.

    It is that of the configuration or the environment, else the credential `token`, else `HOME/token`, which is generated if
    missing.

    Raises:
        StartRefused: The token is weak, or the gateway would listen beyond this machine with a generated token.
    """
    chosen = config.gateway.token
    if chosen is None:  # a blank token is not None: somebody meant to set one
        chosen = _credential(environment)
    if chosen is not None:
        text, origin = chosen.reveal().strip(), "The token"
    else:
        if not is_loopback(config.gateway.host):
            raise StartRefused(
                f"{config.gateway.host} can be reached from other machines, and no token is configured:"
                " set gateway.token (or EXUVIA_TOKEN), or listen on 127.0.0.1."
            )
        config.references.files.add(home.token)  # watched from now on
        text, origin = _stored_token(home.token), f"The token in {home.token}"
    if weakness := token_weakness(text):
        raise StartRefused(f"{origin} {weakness}. {HOW_TO_GENERATE}.")
    token = Secret(text)
    hide(token)
    return token


def rotate_token(home: Home, sources: Sources, environment: Mapping[str, str]) -> None:
    """Write a new random token into `HOME/token`, atomically; a running gateway follows within seconds.

    The configuration need not be valid.

    Raises:
        StartRefused: The token does not come from that file.
        OSError: The file cannot be written.
    """
    gateway = sources.tree.get("gateway")
    chosen = isinstance(gateway, dict) and "token" in gateway
    for is_used, place in (
        (chosen, sources.place("gateway.token")),
        (_credential(environment) is not None, "$CREDENTIALS_DIRECTORY"),
    ):
        if is_used:
            raise StartRefused(f"The token comes from {place}, not from {home.token}: change it there.")
    replace_file(home.token, secrets.token_urlsafe(32).encode() + b"\n")


def token_weakness(token: str) -> str | None:
    """Return why a token is rejected, as the rest of a sentence that begins with its name; None if it is accepted."""
    if not token:
        return "is blank"
    if any(not "!" <= character <= "~" for character in token):
        return "has characters that are not allowed in an HTTP header"
    plain = "".join(filter(str.isalnum, token.lower()))
    if any(word in plain for word in _PLACEHOLDERS):
        return "is a placeholder"
    if len(token) < SHORTEST:
        return f"is shorter than {SHORTEST} characters"
    return _repetition(token)


def _repetition(token: str) -> str | None:
    if len(set(token)) < _FEWEST_DIFFERENT:
        return f"has fewer than {_FEWEST_DIFFERENT} different characters"
    return "is a repeated pattern" if token in (token + token)[1:-1] else None


def is_loopback(host: str) -> bool:
    """Return True if an address to listen on can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _credential(environment: Mapping[str, str]) -> Secret | None:
    """Return the credential `token` that the service manager passes, if any."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder or not (Path(folder) / "token").exists():
        return None
    try:
        return Secret(read_credential("token", environment))
    except ConfigRefused as error:
        raise StartRefused(f"The token cannot be read: {error}.") from error


def _stored_token(path: Path) -> str:
    """Return the token in a file; generate it, durably, if the file is missing."""
    try:
        if not path.exists():
            token = secrets.token_urlsafe(32)
            write_new(path, [token.encode() + b"\n"])
            return token
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
            log.warning("token_was_readable", path=str(path), done="made private (0600); delete the file to get a new token")
        return read_secret_file(path)
    except (OSError, ConfigRefused) as error:
        raise StartRefused(f"The token in {path} cannot be read or generated: {error}.") from error
