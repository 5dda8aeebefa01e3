"""A small process that appends to journals and prints what was reported durable, for tests that hurt it.

    python -m tests.faults.writer HOME --journals 3 --lines 40 [--fsize BYTES]

prints `pid N`, then `durable JOURNAL SEQ` behind each report, and `failed JOURNAL fatal|cut` for each failure. A journal
that was cut back is opened again, once, and goes on; with `--fsize`, the longest file that may be written, that limit is
lifted first. With `--threads 1` the fifth write is the fifth, for strace, which counts calls by thread.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
from pathlib import Path

from sessions.events.codec import encode
from sessions.events.errors import StorageFailed
from sessions.events.events import Recorded
from sessions.files import committer
from sessions.files.journals import Journal, Journals
from sessions.store.protocols import START, Position
from tests.sessions.journal_stories import CommitListener, journals_in
from tests.stories import AT, received


async def run(home: Path, journals: int, lines: int) -> None:
    async with journals_in(home) as store, asyncio.TaskGroup() as group:
        for number in range(journals):
            group.create_task(_write(store, f"j{number}", lines))


async def _write(store: Journals, name: str, lines: int) -> None:
    journal, position = await store.create(name), START
    if not await _append(journal, name, position, lines):
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        try:
            journal, position = await store.open(name, fold=lambda _: None)
        except StorageFailed:
            return
        await _append(journal, name, position, lines)
    await journal.close()


async def _append(journal: Journal, name: str, position: Position, lines: int) -> bool:
    """Append until the journal has `lines` lines; whether it could."""
    listener = CommitListener(journal)
    digest = position.sum
    for seq in range(position.seq + 1, lines + 1):
        event = received(f"{name} {seq} " + "x" * (seq * 7 % 200), f"m{seq}")
        line, digest = encode(Recorded(seq=seq, at=AT, turn=None, event=event), digest)
        try:
            journal.append(line, urgent=True)
            await listener.until(journal.end)
        except StorageFailed as failure:
            listener.failures.append(failure)
        if listener.failures:
            _say(f"failed {name} {'fatal' if listener.failures[0].fatal else 'cut'}")
            return False
        _say(f"durable {name} {seq}")
    return True


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--journals", type=int, default=1)
    parser.add_argument("--lines", type=int, default=10)
    parser.add_argument("--fsize", type=int)
    parser.add_argument("--threads", type=int, default=committer.THREADS)
    options = parser.parse_args()
    if options.fsize:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.fsize, resource.RLIM_INFINITY))
    committer.THREADS = options.threads
    _say(f"pid {os.getpid()}")
    asyncio.run(run(options.home, options.journals, options.lines))


if __name__ == "__main__":
    main()
