"""A gateway with a defect, to prove that the checker finds what it is for: `python -m tests.cluster.defects run …`.

The variable CLUSTER_DEFECT names the defect: `none`, `receipts`, `early` or `epoch`.
"""

from __future__ import annotations

import os
import sys

import exuvia
from gateway.conversations.routing.chat import AcceptedMessage, Chat
from sessions.postgres import group_commit
from sessions.store.receipts import Receipt, Receipts

DEFECT = "CLUSTER_DEFECT"
_EPOCH = " AND log.epoch = given.epoch"


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


def no_epoch() -> None:
    """Append in whatever epoch the log is."""
    assert _EPOCH in group_commit._APPEND
    group_commit._APPEND = group_commit._APPEND.replace(_EPOCH, "")


DEFECTS = {"none": lambda: None, "receipts": no_receipts, "early": acknowledge_early, "epoch": no_epoch}


if __name__ == "__main__":
    DEFECTS[os.environ[DEFECT]]()
    sys.exit(exuvia.main())
