"""The facts of a home: their log, opened by the gateway or only read by the command line."""

from __future__ import annotations

import os
from collections.abc import Callable

from gateway.config.settings import Settings
from gateway.support.home import Home
from plugins.api.context import Clock
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_log import decode
from plugins.facts.facts import Facts
from sessions.events.errors import UnknownSession
from sessions.files.committer import Committer
from sessions.files.journal import Journals
from sessions.files.verify import open_journal, verify_lines
from sessions.store.protocols import START, Log, Position


def facts_of(home: Home, settings: Settings, committer: Committer, clock: Clock) -> Facts:
    """Return the facts of a home that this process has locked; they follow changes of the settings. The log is opened on
    first use."""
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


def read_facts(home: Home) -> FactBook:
    """Return the facts on the disk, even while another process writes them. Raises JournalDamaged, StorageFailed and
    InvalidLine."""
    book = FactBook()
    try:
        with open_journal(home.facts) as descriptor:
            size = os.fstat(descriptor).st_size
            verify_lines(descriptor, home.facts, START, size, lambda line: book.apply(decode(line)))
    except UnknownSession:
        return book
    return book
