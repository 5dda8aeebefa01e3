"""The gateway's home directory: its layout, creation and permissions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from gateway.support.errors import StartRefused
from plugins.support.secrets import Secret
from sessions.events.events import MAIN_AGENT
from sessions.files.fsync import make_folder

_INDEX = "memory."
"""Prefix of the files of the memory index, for every backend."""

SPENDING = "spending-"
"""Prefix of the logs of what requests to models cost, one for each month."""


class _Entry:
    """A file or folder of a home by its name, as an attribute that is its path."""

    names: ClassVar = {"workspace"}
    """The names of everything that the gateway creates in a home."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.names.add(name)

    def __get__(self, home: Home, _: type[Home]) -> Path:
        return home.root / self._name


class Home(msgspec.Struct, frozen=True):
    """The paths below a home directory, which need not exist yet."""

    root: Path
    database: Secret | None = None
    """The URL of the database that has the logs; None if they are files of the home."""

    config = _Entry("config.toml")
    """The configuration file, which is optional."""
    secrets = _Entry("secrets")
    """The secrets that were entered in the console, one file each."""
    token = _Entry("token")
    """The token that the gateway generated."""
    lock = _Entry("lock")
    """The lock file of the running gateway."""
    address = _Entry("address")
    """The address of the running gateway."""
    sessions = _Entry("sessions")
    """The journals."""
    quarantine = _Entry("quarantine")
    """Torn tails and reports on damaged journals."""
    attachments = _Entry("attachments")
    """Uploads and truncated tool output, addressed by content."""
    memory = _Entry("memory.sqlite")
    """The index of the notes; derived."""
    facts = _Entry("facts.jsonl")
    """The log of the facts."""
    approvals = _Entry("approvals.jsonl")
    """The log of what people approved always."""
    people = _Entry("people.jsonl")
    """The log of the people who were added while the gateway ran."""
    pairings = _Entry("pairings.jsonl")
    """The log of the addresses that are linked to persons."""
    messages = _Entry("messages.sqlite")
    """The index of all messages for searches; derived."""
    shares = _Entry("shares.jsonl")
    """The log of read-only links to conversations."""
    deletions = _Entry("deletions.jsonl")
    """The log of deleted conversations, without their texts."""
    backups = _Entry("backups.json")
    """The list of the backups that were written from this home."""
    responses = _Entry("responses.jsonl")
    """The log of the responses without a session."""
    catalog = _Entry("catalog.sqlite")
    """The catalog of sessions; derived."""
    models = _Entry("models.json")
    """The cached model lists of the providers; derived."""
    plugins = _Entry("plugins")
    """The parent of the plugins' own folders."""
    agents = _Entry("agents")
    """The parent of the folders of the agents in `[agents.NAME]`."""
    channels = _Entry("channels")
    """The parent of the folders of the channels in `[channels.NAME]`."""
    admitted_skills = _Entry("admitted_skills")
    """The log of the admitted skills, with copies of them."""
    mcp_logins = _Entry("mcp_logins")
    """The tokens of logins to MCP servers."""
    held_up = _Entry("held_up.json")
    """The plugin that blocked the event loop of the previous process."""
    jobs = _Entry("jobs")
    """The names of running background jobs."""
    export_key = _Entry("export_key")
    """The SSH key that signs exported bundles."""
    export_key_public = _Entry("export_key.pub")
    """Its public part."""
    signed_out = _Entry("signed_out.json")
    """The browser cookies that were signed out."""
    sign_ins = _Entry("sign_ins.json")
    """The browsers that are signed in, as their people see them."""

    @classmethod
    def resolve(cls, given: Path | None, environment: Mapping[str, str]) -> Home:
        """Return the home given on the command line, else `$EXUVIA_HOME`, else `~/.exuvia`; the path is absolute."""
        chosen = given or Path(environment.get("EXUVIA_HOME") or "~/.exuvia")
        return cls(Path(os.path.abspath(chosen.expanduser())))

    def workspace(self, named: str) -> Path:
        """Return the workspace named by `agent.workspace`: relative to the home unless absolute (or `~`)."""
        return self.root / Path(named).expanduser()

    def workspaces(self, named: Iterable[str]) -> list[Path]:
        """Return the workspaces with these names in the configuration, and those of agents that it does not name any more.
        Blocks."""
        return list(dict.fromkeys([*map(self.workspace, named), *sorted(self.agents.glob("*/workspace"))]))

    def of_agent(self, agent: str) -> Home:
        """Return the paths of an agent's own files: its memory, facts, skills and jobs. Those of `main` are in the home."""
        return self if agent == MAIN_AGENT else Home(self.agents / agent, self.database)

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
        ours = (
            self.sessions,
            self.quarantine,
            self.attachments,
            self.plugins,
            self.agents,
            self.channels,
            self.admitted_skills,
        )
        if root.is_relative_to(place) or any(place.is_relative_to(folder.resolve()) for folder in ours):
            raise StartRefused(
                f"agent.workspace is {workspace}, which overlaps with the gateway's own files; models may not read or write"
                " those. Choose a separate folder."
            )

    def _close_to_others(self) -> None:
        mode = self.root.stat().st_mode
        if mode & 0o002:
            raise StartRefused(f"Every user may write to {self.root}; choose another home, or restrict it with chmod 700.")
        if mode & 0o077 and self._only_ours():
            self.root.chmod(0o700)

    def _only_ours(self) -> bool:
        owned = self.root.stat().st_uid == os.getuid()
        return owned and all(
            entry.name.startswith((_INDEX, SPENDING)) or entry.name in _Entry.names for entry in self.root.iterdir()
        )
