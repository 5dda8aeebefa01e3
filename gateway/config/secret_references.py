"""References to secrets: `env:NAME`, `file:PATH`, `credential:NAME`, or the secret itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.support.errors import ConfigRefused
from gateway.support.small_files import read_at_most
from plugins.support.secrets import Secret, hide

FORMS = "env:NAME, file:PATH or credential:NAME"

_LONGEST = 64 * 1024
"""Bytes of the largest secret file."""


class References(msgspec.Struct, frozen=True):
    """The context in which references are resolved.

    Relative paths are relative to `folder`, that of the configuration. `files` collects the files that references named,
    readable or not.
    """

    environment: Mapping[str, str]
    folder: Path
    files: set[Path] = msgspec.field(default_factory=set)

    def __repr__(self) -> str:
        return f"References({str(self.folder)!r})"  # the environment holds secrets

    def resolve(self, text: str) -> Secret:
        """Return the secret that a reference names, or the text itself; it is redacted from logs from then on.

        Raises:
            ConfigRefused: The secret is not available; the message never contains it.
        """
        kind, colon, name = text.partition(":")
        if not colon or kind not in ("env", "file", "credential"):
            secret = Secret(text)
        elif kind == "env":
            if name not in self.environment:
                raise ConfigRefused(f"the environment variable {name} is not set")
            secret = Secret(self.environment[name].strip())
        elif kind == "file":
            path = self.folder / Path(name).expanduser()
            self.files.add(path)
            secret = Secret(read_secret_file(path))
        else:
            secret = Secret(read_credential(name, self.environment))
        hide(secret)
        return secret


def is_reference(text: str) -> bool:
    """Return True if the text is a reference and not the secret itself."""
    return text.startswith(("env:", "file:", "credential:"))


def read_credential(name: str, environment: Mapping[str, str]) -> str:
    """Return a credential that the service manager passes in `$CREDENTIALS_DIRECTORY`; ConfigRefused if there is none."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise ConfigRefused(f"the credential {name} needs CREDENTIALS_DIRECTORY, which systemd sets")
    if Path(name).name != name:
        raise ConfigRefused(f"{name!r} is not the name of a credential")
    return read_secret_file(Path(folder) / name)


def read_secret_file(path: Path) -> str:
    """Return a small file's text, stripped; ConfigRefused if it cannot be read."""
    try:
        content = read_at_most(path, _LONGEST)
        text = None if content is None else content.decode()
    except OSError as error:
        raise ConfigRefused(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigRefused(f"{path} is not text") from error
    if text is None:
        raise ConfigRefused(f"{path} is too large for a secret")
    return text.strip()
