"""The gateway's home directory: its layout, creation and permissions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.support.errors import StartRefused
from sessions.files.fsync import make_folder

_OURS = frozenset(
    [
        "config.toml",
        "token",
        "lock",
        "address",
        "sessions",
        "quarantine",
        "attachments",
        "plugins",
        "workspace",
        "catalog.sqlite",
        "models.json",
        "facts.jsonl",
        "held_up.json",
        "signed_out.json",
    ]
)
_INDEX = "memory."
"""Prefix of the files of the memory index, for every backend."""


class Home(msgspec.Struct, frozen=True):
    """The paths below a home directory, which need not exist yet."""

    root: Path

    @classmethod
    def resolve(cls, given: Path | None, environment: Mapping[str, str]) -> Home:
        """Return the home given on the command line, else `$EXUVIA_HOME`, else `~/.exuvia`; the path is absolute."""
        chosen = given or Path(environment.get("EXUVIA_HOME") or "~/.exuvia")
        return cls(Path(os.path.abspath(chosen.expanduser())))

    @property
    def config(self) -> Path:
        """The configuration file, which is optional."""
        return self.root / "config.toml"

    @property
    def token(self) -> Path:
        """The token that the gateway generated."""
        return self.root / "token"

    @property
    def lock(self) -> Path:
        """The lock file of the running gateway."""
        return self.root / "lock"

    @property
    def address(self) -> Path:
        """The address of the running gateway."""
        return self.root / "address"

    @property
    def sessions(self) -> Path:
        """The journals."""
        return self.root / "sessions"

    @property
    def quarantine(self) -> Path:
        """Torn tails and reports on damaged journals."""
        return self.root / "quarantine"

    @property
    def attachments(self) -> Path:
        """Uploads and truncated tool output, addressed by content."""
        return self.root / "attachments"

    @property
    def memory(self) -> Path:
        """The index of the notes; derived."""
        return self.root / "memory.sqlite"

    @property
    def facts(self) -> Path:
        """The log of the facts."""
        return self.root / "facts.jsonl"

    @property
    def catalog(self) -> Path:
        """The catalog of sessions; derived."""
        return self.root / "catalog.sqlite"

    @property
    def models(self) -> Path:
        """The cached model lists of the providers; derived."""
        return self.root / "models.json"

    @property
    def plugins(self) -> Path:
        """The parent of the plugins' own folders."""
        return self.root / "plugins"

    @property
    def held_up(self) -> Path:
        """The plugin that blocked the event loop of the previous process."""
        return self.root / "held_up.json"

    @property
    def signed_out(self) -> Path:
        """The browser cookies that were signed out."""
        return self.root / "signed_out.json"

    def workspace(self, named: str) -> Path:
        """Return the workspace named by `agent.workspace`: relative to the home unless absolute (or `~`)."""
        return self.root / Path(named).expanduser()

    def make(self, workspace: str = "workspace") -> None:
        """Create the home, the workspace and the sessions folder (mode 0700) if they are missing.

        An existing home is closed to other users if it holds nothing but the gateway's files. It is refused if every
        user of the machine may write to it, as to `/tmp`: others could replace a journal.

        Raises:
            StartRefused: The home or the workspace cannot be used.
        """
        try:
            make_folder(self.root)
            self._close_to_others()
            self._keep_apart(self.workspace(workspace))
            make_folder(self.workspace(workspace))
            make_folder(self.sessions)
        except OSError as error:
            raise StartRefused(f"The home {self.root} cannot be used: {error.strerror or error}.") from error

    def _keep_apart(self, workspace: Path) -> None:
        """Refuse a workspace that contains the gateway's own files, since the model's tools can read all of it."""
        place, root = workspace.resolve(), self.root.resolve()
        ours = (self.sessions, self.quarantine, self.attachments, self.plugins)
        if root.is_relative_to(place) or any(place.is_relative_to(folder.resolve()) for folder in ours):
            raise StartRefused(
                f"agent.workspace is {workspace}, where the gateway's own files lie, which no model may read or write;"
                " name a folder of its own."
            )

    def _close_to_others(self) -> None:
        mode = self.root.stat().st_mode
        if mode & 0o002:
            raise StartRefused(f"Everybody may write to {self.root}; choose another home, or close it: chmod 700.")
        if mode & 0o077 and self._only_ours():
            self.root.chmod(0o700)

    def _only_ours(self) -> bool:
        owned = self.root.stat().st_uid == os.getuid()
        return owned and all(entry.name.startswith(_INDEX) or entry.name in _OURS for entry in self.root.iterdir())
