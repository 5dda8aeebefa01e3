"""Where a secret really is: `env:NAME`, `file:PATH`, `credential:NAME`, or the text itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.support.errors import ConfigRefused
from gateway.support.small_files import read_at_most
from plugins.support.secrets import Secret, hide

FORMS = "env:NAME, file:PATH or credential:NAME"

_LONGEST = 64 * 1024
"""Bytes of the largest file that is taken for a secret."""


class References(msgspec.Struct, frozen=True):
    """What references are resolved against. Relative paths count from `folder`, the configuration's own. `files` grows:
    those that references named so far, whether they could be read or not."""

    environment: Mapping[str, str]
    folder: Path
    files: set[Path] = msgspec.field(default_factory=set)

    def __repr__(self) -> str:
        return f"References({str(self.folder)!r})"  # the environment holds secrets

    def resolve(self, text: str) -> Secret:
        """The secret that a reference names, or that the text is; hidden from here on. ConfigRefused if it
        cannot be had, with a sentence part that never holds the secret."""
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
    """Whether the text says where the secret is, rather than being it."""
    return text.startswith(("env:", "file:", "credential:"))


def read_credential(name: str, environment: Mapping[str, str]) -> str:
    """A credential that the service manager passes in `$CREDENTIALS_DIRECTORY`; ConfigRefused if there is none."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise ConfigRefused(f"the credential {name} needs CREDENTIALS_DIRECTORY, which systemd sets")
    if Path(name).name != name:
        raise ConfigRefused(f"{name!r} is not the name of a credential")
    return read_secret_file(Path(folder) / name)


def read_secret_file(path: Path) -> str:
    """A small file's text without surrounding white space; ConfigRefused if it is not that."""
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
