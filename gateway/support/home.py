"""The gateway's home: where everything lies that it keeps, and how the folder is made."""

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
"""How the memory's index is called, wherever it rests, and what lies beside it."""


class Home(msgspec.Struct, frozen=True):
    """One home. The properties are places below `root`, which need not exist yet."""

    root: Path

    @classmethod
    def resolve(cls, given: Path | None, environment: Mapping[str, str]) -> Home:
        """The home that the command line gives, else `$EXUVIA_HOME`, else `~/.exuvia`; absolute."""
        chosen = given or Path(environment.get("EXUVIA_HOME") or "~/.exuvia")
        return cls(Path(os.path.abspath(chosen.expanduser())))

    @property
    def config(self) -> Path:
        """The configuration, which may be missing."""
        return self.root / "config.toml"

    @property
    def token(self) -> Path:
        """The token that the gateway made for itself."""
        return self.root / "token"

    @property
    def lock(self) -> Path:
        """Held by the gateway that runs on this home."""
        return self.root / "lock"

    @property
    def address(self) -> Path:
        """Where the gateway that runs on this home listens."""
        return self.root / "address"

    @property
    def sessions(self) -> Path:
        """The journals."""
        return self.root / "sessions"

    @property
    def quarantine(self) -> Path:
        """What was set aside: torn tails and reports on damaged journals."""
        return self.root / "quarantine"

    @property
    def attachments(self) -> Path:
        """Pictures and cut tool output, by content."""
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
        """What the vendors told of their models; derived."""
        return self.root / "models.json"

    @property
    def plugins(self) -> Path:
        """Above the folders that plugins keep for themselves."""
        return self.root / "plugins"

    @property
    def held_up(self) -> Path:
        """Which plugin made the process end, for the next start to know."""
        return self.root / "held_up.json"

    @property
    def signed_out(self) -> Path:
        """Which cookies of browsers were signed out."""
        return self.root / "signed_out.json"

    def workspace(self, named: str) -> Path:
        """The assistant's folder as `agent.workspace` names it: below the home unless absolute (or `~`)."""
        return self.root / Path(named).expanduser()

    def make(self, workspace: str = "workspace") -> None:
        """Make the home, the workspace and the folder of the sessions (0700) where they are missing; StartRefused if that
        cannot be.

        A home that was there is closed to others too, if nothing but ours is in it. It is refused where any user of the
        machine may write, as in `/tmp`: they could put a journal of theirs in the place of ours.
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
        """The model's tools see the whole workspace: neither the token nor anybody's conversations may lie in it."""
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
