"""The content of a home, in the order in which a backup reads it: first the logs, then the files that they name.

What is derived is left out, since the next start makes it again. All functions block; the gateway may be running.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.support.home import Home
from gateway.support.storage import (
    agents_with_logs,
    attachments_of,
    fact_logs,
    plugin_logs,
    plugins_with_logs,
    session_logs,
)
from sessions.store.reading import StoredLog

_DERIVED = {"lock", "address", "held_up.json", "jobs", "models.json"}
_DERIVED_PREFIXES = ("catalog.sqlite", "messages.sqlite", "memory.")
_SECRETS = {"token", "secrets", "mcp_logins", "export_key"}
_CHANNEL_SECRETS = ("login.json", "token.json")
SQLITE = ".sqlite"
"""The suffix of a database, which is copied by SQLite, because it may be written meanwhile."""

LEFT_BY_SQLITE = ("-wal", "-shm", "-journal")
"""What SQLite appends to the name of a database for the files beside it; the copy needs none of them."""


class HomeLog(NamedTuple):
    """A log of a home, and its path there; with a database, the path that it would have."""

    path: str
    log: StoredLog


class HomeFile(NamedTuple):
    """A file or a symbolic link of a home, its path there, and its attributes."""

    path: str
    place: Path
    found: os.stat_result


def logs_of(home: Home) -> Iterator[HomeLog]:
    """Yield the logs: those of the home first, that of the deletions last, so that it has all that happened meanwhile.

    Raises StorageFailed.
    """
    others, deletions = fact_logs(home), home.deletions.stem
    for name, _ in others.listed():
        if name != deletions:
            yield HomeLog(f"{name}.jsonl", StoredLog(others, name))
    for agent in agents_with_logs(home):
        logs = fact_logs(home, agent)
        for name, _ in logs.listed():
            yield HomeLog(f"{home.agents.name}/{agent}/{name}.jsonl", StoredLog(logs, name))
    for plugin in plugins_with_logs(home):
        yield HomeLog(f"{home.plugins.name}/{plugin}/log.jsonl", StoredLog(plugin_logs(home, plugin), "log"))
    sessions = session_logs(home)
    for name, _ in sessions.listed():
        yield HomeLog(f"{home.sessions.name}/{name}.jsonl", StoredLog(sessions, name))
    if others.stamp(deletions) is not None:
        yield HomeLog(home.deletions.name, StoredLog(others, deletions))


def files_of(home: Home, *, secrets: bool) -> Iterator[HomeFile]:
    """Yield the files that are no logs, in the order of their names, attachments first. Raises OSError."""
    if home.database is not None:
        yield from _attachments_of_database(home)
    top = sorted(name for name in os.listdir(home.root) if not _is_derived(name))
    for name in sorted(top, key=home.attachments.name.__ne__):
        in_database = home.database is not None and name == home.attachments.name
        if not in_database and (secrets or name not in _SECRETS):
            yield from _files_below(home, home.root / name, secrets=secrets)


def _attachments_of_database(home: Home) -> Iterator[HomeFile]:
    """Yield the attachments of a database, each as the copy in a file that the gateway serves too. Their records of who has
    sent them are made again from the journals."""
    blobs = attachments_of(home)
    for digest in sorted({attachment.sha256 for _, attachment, _ in blobs.records()}):
        if (place := asyncio.run(blobs.file(digest))) is not None:
            yield HomeFile(f"{home.attachments.name}/{digest}", place, place.stat())


def _is_derived(name: str) -> bool:
    is_log = name.endswith(".jsonl")
    return name in _DERIVED or name.startswith(_DERIVED_PREFIXES) or name == "sessions" or is_log or name.startswith(".")


def _files_below(home: Home, place: Path, *, secrets: bool) -> Iterator[HomeFile]:
    path = place.relative_to(home.root).as_posix()
    try:
        found = place.lstat()
        if stat.S_ISDIR(found.st_mode):
            for name in sorted(os.listdir(place)):
                yield from _files_below(home, place / name, secrets=secrets)
            return
    except FileNotFoundError:
        return  # removed meanwhile
    if (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)) and not _is_left_out(path, secrets=secrets):
        yield HomeFile(path, place, found)


def _is_left_out(path: str, *, secrets: bool) -> bool:
    """Return True for logs of agents and plugins, which are read as such, what is derived for an agent, drafts, what SQLite
    leaves, and secrets of channels."""
    parts = path.split("/")
    area, name = parts[0], parts[-1]
    if area == "agents" and len(parts) > 2 and _is_derived(parts[2]):
        return True
    if area == "plugins" and parts[2:] == ["log.jsonl"]:
        return True
    if area == "attachments" and name.startswith("."):
        return True
    if any(name.endswith(SQLITE + left) for left in LEFT_BY_SQLITE):
        return True
    return area == "channels" and not secrets and (name in _CHANNEL_SECRETS or name.startswith("keys-"))
