"""How large the benchmarks are."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that the command line may change. `folder` is where homes and files are made; its file system is the one
    that is measured."""

    folder: Path
    cache: Path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exuvia"
    """Where vectors are kept from one run to the next."""
    turns: int = 2000
    """The depth of the one long session."""
    window: int = 80
    """Turns that are measured from each depth on; more of them where the disk is busy."""
    runs: int = 7
    """Starts, and other measures of seconds, that are repeated."""
    sessions: int = 50
    """Sessions at once."""
    each: int = 40
    """Turns of each of those sessions."""
    journals: int = 2000
    """Journals in the home that is restarted."""
    conversations: int = 5
    """Conversations in which answers are looked for, where there are any."""
    notes: int = 10_000
    """Notes in which is searched."""
    events: int = 100_000
    """Events of the long journal that is opened."""
    chunks: int = 100_000
    """Chunks of the large index."""
