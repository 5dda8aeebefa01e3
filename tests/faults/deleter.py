"""A gateway that deletes the conversation `main` and is killed on the way: `python -m tests.faults.deleter HOME STEP`.

It kills itself before the STEP-th step of the deletion, from 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from gateway.conversations.deletion.deletion_log import DeletionFinished, SessionDeleted
from gateway.conversations.search.message_index import MessageIndex
from plugins.memory.memory import Memory
from sessions.attachments.owners import Owners
from sessions.attachments.store import Attachments
from sessions.catalog.catalog_file import CatalogFile
from sessions.files import journals
from sessions.store.log_writer import LogWriter
from tests.gateway.gateways import gateway

PLACES: tuple[tuple[Any, str], ...] = (
    (journals, "remove_journal"),
    (CatalogFile, "remove"),
    (Owners, "doubt"),
    (Owners, "drop"),
    (Attachments, "_remove"),
    (Memory, "purge"),
    (MessageIndex, "remove"),
)
"""The functions that remove something; the events of the deletion are steps too."""

STEPS = 10
"""The steps of a deletion of two sessions with one file: two events, two journals, and one each of the others."""


async def delete(home: Path, step: int) -> None:
    numbers = count(1)

    def now() -> None:
        if next(numbers) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    async with gateway(home, settings={"memory.embedding.provider": "none"}) as running:
        client = await running.connect()
        for owner, name in PLACES:
            setattr(owner, name, _deadly(getattr(owner, name), now))
        plain = LogWriter.append

        def append(self: Any, event: Any, **named: Any) -> int:
            if isinstance(event, SessionDeleted | DeletionFinished):
                now()
            return plain(self, event, **named)

        LogWriter.append = append  # type: ignore[method-assign]
        await client.say("delete", id="d", session="main")
        deleted = await client.until_type("deleted")
        assert deleted["removed"]["attachments"] == 1


def _deadly(plain: Callable[..., Any], now: Callable[[], None]) -> Callable[..., Any]:
    def step(*arguments: Any, **named: Any) -> Any:
        now()
        return plain(*arguments, **named)

    return step


if __name__ == "__main__":
    asyncio.run(delete(Path(sys.argv[1]), int(sys.argv[2])))
