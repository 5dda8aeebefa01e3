"""Checks of the home: permissions, token, journals, index and clock."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gateway.auth.token import token_weakness
from gateway.config.rendering import CheckedConfig
from gateway.config.secret_references import read_secret_file
from gateway.conversations.facts.fact_store import read_facts
from gateway.conversations.notes.workspace_memory import chosen_sources
from gateway.doctor.findings import DoctorContext, Finding
from gateway.support.errors import ConfigRefused
from gateway.support.storage import acknowledged_in, fact_logs, session_logs
from gateway.support.stored_sessions import session_listings
from plugins.api.memory_settings import SQLITE
from plugins.memory.index.index_stats import outdated_documents
from plugins.memory.sources.transcripts import Transcripts
from sessions.catalog.durability_check import describe_loss
from sessions.catalog.scan import scan_logs
from sessions.catalog.sqlite import Error, lacks_full_text
from sessions.events.codec import InvalidLine
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.store.reading import StoredLog

CLOCK_SECONDS = 300.0
"""Seconds that the clock may be behind the newest event: corrections of a clock are smaller."""


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Report the faults that `exuvia config check` reports."""
    yield from configuration_findings(context.checked)


def configuration_findings(checked: CheckedConfig) -> Iterator[Finding]:
    """Yield the faults and warnings of a checked configuration."""
    for fault in checked.faults:
        yield Finding(
            fault, "Correct it; `exuvia config check` reports every fault, and a running gateway reloads the file."
        )
    for warning in checked.warnings:
        yield Finding(warning, "Move it into a file of mode 600 and write `file:PATH` instead.", level="note")


def presence(context: DoctorContext) -> Iterator[Finding]:
    """Report a missing home."""
    if not context.home.root.is_dir():
        yield Finding(f"There is no home at {context.home.root}.", "`exuvia run` creates it.", level="note")


def permissions(context: DoctorContext) -> Iterator[Finding]:
    """Report private files that others can read, and files of another user."""
    home = context.home
    try:
        root = home.root.stat()
    except FileNotFoundError:
        return
    private = [
        home.root,
        home.token,
        home.config,
        home.secrets,
        home.sessions,
        home.attachments,
        home.quarantine,
        home.catalog,
    ]
    found = {path: path.lstat() for place in private for path in (place, *_inside(place)) if path.exists()}
    foreign = [path for path, each in found.items() if each.st_uid != root.st_uid]
    # In a closed folder, the modes of its files do not matter.
    closed = not root.st_mode & 0o077
    open_to_others = [
        path for path, each in found.items() if not closed and each.st_mode & 0o077 and not stat.S_ISLNK(each.st_mode)
    ]
    if open_to_others:
        yield Finding(
            f"Other users of this machine can open {_named(open_to_others)}.",
            f"Remove their access: `chmod -R go= {home.root}`.",
        )
    if foreign:
        yield Finding(
            f"The home and {_named(foreign)} belong to different users.",
            f"Make the user that runs the gateway the owner: `chown -R USER {home.root}`.",
        )
    if not os.access(home.root, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            f"This user cannot read and write {home.root}.",
            "Run `exuvia doctor` as the user that runs the gateway, or make this user the owner of the folder.",
        )


def token(context: DoctorContext) -> Iterator[Finding]:
    """Report a weak token in the home; a configured token is checked with the configuration."""
    path = context.home.token
    if not path.exists() or (context.config is not None and context.config.gateway.token is not None):
        return
    try:
        weakness = token_weakness(read_secret_file(path))
    except ConfigRefused as error:
        weakness = f"cannot be read: {error}"
    if weakness:
        yield Finding(
            f"The token in {path} {weakness}.", "Delete the file and restart the gateway, which creates a new one."
        )


def damage(context: DoctorContext) -> Iterator[Finding]:
    """Verify every journal; a running gateway may append meanwhile."""
    logs = session_logs(context.home)
    unreadable = scan_logs(logs, {}).unreadable
    runs = context.process() is not None
    try:
        heads = acknowledged_in(context.home)  # before the journals, which may be growing
    except StorageFailed as error:
        heads = {}
        yield Finding(
            f"{error} Truncated journals cannot be detected.", "Delete the catalog; it is rebuilt from the journals."
        )
    sessions = [session for session, _ in logs.listed()]
    for session in sorted(heads.keys() - set(sessions)):
        yield _damaged(f"{logs.location(session)}: {describe_loss(0, heads[session])}.")
    for session in unreadable.keys() - set(sessions):
        yield _damaged(f"{logs.location(session)} cannot be read: {unreadable[session]}.")
    for session in sessions:
        path = logs.location(session)
        try:
            verified = StoredLog(logs, session).verify()
        except JournalDamaged as damaged:
            place = f"{path}, line {damaged.line}" if damaged.line else path
            yield _damaged(f"{place} is damaged: {damaged.reason}.")
        except SessionsError as error:
            yield _damaged(f"{path} cannot be read: {error}.")
        else:
            if missing := describe_loss(verified.events, heads.get(session, 0)):
                yield _damaged(f"{path}: {missing}.")
            elif session in unreadable:
                yield _damaged(f"{path} cannot be used: {unreadable[session]}.")
            elif verified.torn and not runs:
                yield Finding(
                    f"{session}.jsonl ends with {verified.torn} bytes of a line that was never finished or acknowledged.",
                    "No action is needed: the next start moves them to the quarantine.",
                    level="note",
                )


def quarantine(context: DoctorContext) -> Iterator[Finding]:
    """Report files in the quarantine."""
    if entries := sorted(_inside(context.home.quarantine)):
        yield Finding(
            f"The quarantine contains {_named(entries)}.",
            f"Read the files, then delete them; the gateway does not need {context.home.quarantine}.",
            level="note",
        )


def facts(context: DoctorContext) -> Iterator[Finding]:
    """Report facts that cannot be read."""
    try:
        read_facts(fact_logs(context.home))
    except (SessionsError, InvalidLine) as error:
        yield Finding(
            f"The facts cannot be read: {error}.".replace("..", "."),
            "The gateway runs without facts and does not change the file; restore a backup of it, or move it away to"
            " start without facts.",
        )


def memory_index(context: DoctorContext) -> Iterator[Finding]:
    """Report an index in SQLite that is out of date. There is none before the first search."""
    index = context.home.memory
    if context.config is None or context.config.memory.backend_name != SQLITE or not index.exists() or lacks_full_text():
        return
    # Journals grow with every turn, so an incomplete index of one is not a problem.
    notes_alone = [source for source in chosen_sources(context.home, context.config) if source.name != Transcripts.name]
    try:
        changed = outdated_documents(index, notes_alone)
    except Error as error:
        yield Finding(f"The memory index {index} cannot be read: {error}.", "Delete it; it is rebuilt from the notes.")
        return
    if changed:
        notes = "1 note has" if len(changed) == 1 else f"{len(changed)} notes have"
        yield Finding(
            f"The memory index is out of date: {notes} changed since, first {changed[0]}.",
            "Run `exuvia memory index`, or wait for the next search, which updates it.",
            level="note",
        )


def clock(context: DoctorContext) -> Iterator[Finding]:
    """Report a clock that is behind the newest event."""
    newest = max((listing.at for listing in session_listings(session_logs(context.home)) if listing.at), default=None)
    if newest is None:
        return
    recorded, now = datetime.fromisoformat(newest), datetime.now(UTC)
    if (recorded - now).total_seconds() > CLOCK_SECONDS:
        yield Finding(
            f"The clock says {now:%Y-%m-%d %H:%M} UTC, but the newest event was recorded at {recorded:%Y-%m-%d %H:%M}.",
            "Synchronise the clock: `timedatectl set-ntp true`. No event is lost or reordered.",
        )


def _damaged(what: str) -> Finding:
    return Finding(
        what, "The session refuses messages. Restore a backup of the file, or type `/new` to start another session."
    )


def _inside(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder)]
    except OSError:
        return []


def _named(paths: list[Path]) -> str:
    """Return the first of the paths, and the number of others."""
    return f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
