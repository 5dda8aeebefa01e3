"""The gateway's token: where it comes from, when it is made, and which ones are refused."""

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
from sessions.files.fsync import sync_folder, write_new

SHORTEST = 24
"""Characters that a token has at least; random ones then hold more than 128 bits."""

_PLACEHOLDERS = ("changeme", "replaceme", "yourtoken", "mytoken", "placeholder", "tokenhere", "insertyour", "secrettoken")
_FEWEST_DIFFERENT = 6

GOOD_ONE = "`python3 -c 'import secrets; print(secrets.token_urlsafe(32))'` prints a good one"
"""What to do about a weak one; a sentence without its end."""

log = structlog.get_logger("exuvia.token")


def gateway_token(home: Home, config: Config, environment: Mapping[str, str]) -> Secret:
    """The token of this start: the configuration's or the environment's, else the credential `token`, else `HOME/token`,
    which is made when it is missing. StartRefused if it is too weak, or if the gateway would listen beyond this machine
    with a token that nobody set on purpose. It is hidden from here on."""
    chosen = config.gateway.token
    if chosen is None:  # a blank one is not None: somebody meant to set it
        chosen = _credential(environment)
    if chosen is not None:
        text, origin = chosen.reveal().strip(), "The token"
    else:
        if not is_loopback(config.gateway.host):
            raise StartRefused(
                f"{config.gateway.host} can be reached from other machines, and no token is set on purpose:"
                " set gateway.token (or EXUVIA_TOKEN), or listen on 127.0.0.1."
            )
        config.references.files.add(home.token)  # watched from now on
        text, origin = _kept(home.token), f"The token in {home.token}"
    if weakness := token_weakness(text):
        raise StartRefused(f"{origin} {weakness}. {GOOD_ONE}.")
    token = Secret(text)
    hide(token)
    return token


def rotate_token(home: Home, sources: Sources, environment: Mapping[str, str]) -> None:
    """Put a new random token into `HOME/token`, whole or not at all; a running gateway follows within seconds. StartRefused
    if that file is not where the token comes from; OSError. Whether the configuration can be used does not matter."""
    gateway = sources.tree.get("gateway")
    chosen = isinstance(gateway, dict) and "token" in gateway
    for elsewhere, place in (
        (chosen, sources.place("gateway.token")),
        (_credential(environment) is not None, "$CREDENTIALS_DIRECTORY"),
    ):
        if elsewhere:
            raise StartRefused(f"The token comes from {place}, not from {home.token}: change it there.")
    new = home.token.with_name(f".{home.token.name}.{secrets.token_hex(4)}")
    write_new(new, [secrets.token_urlsafe(32).encode() + b"\n"])
    try:
        new.replace(home.token)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(home.token.parent)


def token_weakness(token: str) -> str | None:
    """Why this token is refused, as the end of a sentence that begins with its name; None if it will do."""
    if not token:
        return "is blank"
    if any(not "!" <= character <= "~" for character in token):
        return "has characters that cannot stand in an HTTP header"
    plain = "".join(filter(str.isalnum, token.lower()))
    if any(word in plain for word in _PLACEHOLDERS):
        return "is a placeholder"
    if len(token) < SHORTEST:
        return f"is shorter than {SHORTEST} characters"
    return _repetition(token)


def _repetition(token: str) -> str | None:
    if len(set(token)) < _FEWEST_DIFFERENT:
        return f"repeats itself: fewer than {_FEWEST_DIFFERENT} of its characters are different"
    return "repeats itself: it is one piece over and over" if token in (token + token)[1:-1] else None


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _credential(environment: Mapping[str, str]) -> Secret | None:
    """The credential `token` where the service manager passes one."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder or not (Path(folder) / "token").exists():
        return None
    try:
        return Secret(read_credential("token", environment))
    except ConfigRefused as error:
        raise StartRefused(f"The token cannot be read: {error}.") from error


def _kept(path: Path) -> str:
    """The token that an earlier start made, or a new one, on disk before it is used."""
    try:
        if not path.exists():
            token = secrets.token_urlsafe(32)
            write_new(path, [token.encode() + b"\n"])
            return token
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
            log.warning("token_was_readable", path=str(path), done="closed to others; delete the file to get a new token")
        return read_secret_file(path)
    except (OSError, ConfigRefused) as error:
        raise StartRefused(f"The token in {path} cannot be read or made: {error}.") from error
