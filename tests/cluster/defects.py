"""A gateway with a defect, to prove that the checker finds what it is for: `python -m tests.cluster.defects run …`.

The variable CLUSTER_DEFECT names the defect: `none`, `receipts`, `early`, `late` or `epoch`.
"""

from __future__ import annotations

import os
import sys
import time

import exuvia
from gateway.conversations.routing.chat import AcceptedMessage, Chat
from gateway.wiring import daemon
from sessions.postgres import group_commit
from sessions.postgres.membership import Membership
from sessions.store.receipts import Receipt, Receipts
from tests.waiting import DEADLINE

DEFECT = "CLUSTER_DEFECT"
LATE_SECONDS = 3.0
_FENCES = (" AND log.epoch = given.epoch", " WHERE owner = '' OR owner IN (SELECT id FROM fence)")


def no_receipts() -> None:
    """Recognize no message that is sent again."""

    def find(self: Receipts, id_: str) -> Receipt | None:
        return None

    Receipts.find = find  # type: ignore[method-assign]


def acknowledge_early() -> None:
    """Acknowledge before the commit."""

    async def until_durable(self: Chat, received: AcceptedMessage) -> None:
        return

    Chat.until_durable = until_durable  # type: ignore[method-assign]


def notice_late() -> None:
    """Notice late that the others have declared this gateway dead, and that it had no contact."""
    daemon.LOST_SECONDS = 2 * DEADLINE
    rejoin = Membership._rejoin

    def late(self: Membership) -> str:
        time.sleep(LATE_SECONDS)
        return rejoin(self)

    Membership._rejoin = late  # type: ignore[method-assign]


def no_epoch() -> None:
    """Append in whatever epoch the log is, dead or alive; and notice late, so that there is something to append."""
    notice_late()
    for name in ("_APPEND", "_APPEND_FIRST"):
        statement = " ".join(getattr(group_commit, name).decode().split())
        for fence in _FENCES:
            assert fence in statement
            statement = statement.replace(fence, "")
        setattr(group_commit, name, statement.encode())


DEFECTS = {"none": lambda: None, "receipts": no_receipts, "early": acknowledge_early, "late": notice_late, "epoch": no_epoch}


if __name__ == "__main__":
    DEFECTS[os.environ[DEFECT]]()
    sys.exit(exuvia.main())
