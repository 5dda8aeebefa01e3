"""The facts of a home: their log, opened for the gateway or only read for the command line."""

from __future__ import annotations

import os
from collections.abc import Callable

from gateway.configuration.settings import Settings
from gateway.home import Home
from plugins.contracts import Clock
from plugins.facts.book import Book
from plugins.facts.facts import Facts
from plugins.facts.lines import decode
from sessions.committer import Committer
from sessions.errors import UnknownSession
from sessions.journal import Journals
from sessions.store import START, Log, Position
from sessions.verifying import reading, verify_lines


def facts_of(home: Home, settings: Settings, committer: Committer, clock: Clock) -> Facts:
    """The facts of a home that this process has locked, which follow the settings as they change. Their log is opened by
    whoever first asks for them."""
    journals = Journals(home.root, home.quarantine, committer)

    async def opened(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
        if not home.facts.exists():
            return await journals.create(home.facts.stem), START
        return await journals.open(home.facts.stem, fold=fold)

    return Facts(
        opened,
        keys=lambda: settings.current.memory.facts,
        workspace=lambda: home.workspace(settings.current.agent.workspace),
        now=clock.now,
        exists=home.facts.exists,
    )


def read_facts(home: Home) -> Book:
    """The facts as they are on the disk, whoever writes them meanwhile. Raises JournalDamaged, StorageFailed and
    InvalidLine."""
    book = Book()
    try:
        with reading(home.facts) as descriptor:
            size = os.fstat(descriptor).st_size
            verify_lines(descriptor, home.facts, START, size, lambda line: book.turn_over(decode(line)))
    except UnknownSession:
        return book
    return book
