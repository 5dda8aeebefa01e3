"""The sizes of the benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line. Temporary homes and files are created in `folder`, on whose file system the
    benchmarks run."""

    folder: Path
    cache: Path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exuvia"
    """The directory for cached vectors."""
    turns: int = 2000
    """Turns of the long session."""
    window: int = 80
    """Measured turns at each depth. Increase it on a busy disk."""
    runs: int = 7
    """Repetitions of starts and other slow measurements."""
    sessions: int = 50
    """Concurrent sessions."""
    each: int = 40
    """Turns of each of those sessions."""
    journals: int = 2000
    """Journals in the home of `restart`, and notes of the keyword search in `retrieval`."""
    conversations: int = 5
    """LoCoMo conversations, if the data exists."""
    notes: int = 10_000
    """Notes of the searched index."""
    events: int = 100_000
    """Events of the long journal in `opening`."""
    chunks: int = 100_000
    """Chunks of the large index."""
    commands: int = 100
    """Commands at each level of the sandbox."""
    many_sessions: int = 1_000_000
    """Sessions in the database of `many-sessions`."""
    skills: int = 500
    """Skills."""
    schedules: int = 1000
    """Schedules."""
    occurrences: int = 100_000
    """Past occurrences in the log of the schedules."""
    import_megabytes: int = 1000
    """Megabytes of text that are imported from each program."""
    transcript: int = 5000
    """Turns of the transcript in the console, with two messages each."""
    cluster_seconds: int = 1800
    """Seconds of the history of a cluster."""
    cluster_messages: int = 20_000
    """Messages of that history."""
    cluster_faults: int = 70
    """Faults of that history."""
    cluster_persons: int = 50
    """Persons who talk to the cluster."""
    cluster_takeovers: int = 50
    """Kills of a gateway whose turns others resume."""
    cluster_wakes: int = 20
    """Times that a gateway stands still for 10 s and wakes up."""
    cluster_rounds: int = 3
    """Times that all gateways are restarted one after the other."""
    before: str = ""
    """The commit of the version before, for the upgrade of a cluster; the newest tag if empty, or else the newest commit
    with earlier tables that works."""
    minutes: int = 0
    """Minutes of the history of a cluster, with messages and faults in proportion; 0 for `cluster_seconds`."""
    cluster_parts: tuple[str, ...] = ()
    """Parts of `cluster` to run; all of them if empty."""
    figures: Path | None = None
    """A file to which `cluster` adds its progress and its figures as it goes."""
    pieces: int = 1000
    """Pieces of the answer that streams in the console, of 40 characters."""
