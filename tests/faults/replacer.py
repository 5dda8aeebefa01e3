"""A process that replaces `note.md` of a workspace and is killed on the way: `python -m tests.faults.replacer FOLDER STEP`.

It kills itself at the STEP-th of its steps that change anything on the disk, from 1; at a write, when half is written.
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

from plugins.tools.read import Read
from plugins.tools.write import Write
from tests.plugins.workspaces import call, context

OLD, NEW = "old\n" * 50_000, "new\n" * 50_000

STEPS = ("write", "fchmod", "fsync", "rename", "fsync")
"""The steps of a replacement, by the names that they have in `os`."""


async def replace(workspace: Path, step: int) -> None:
    read, write = Read(context(workspace)), Write(context(workspace))
    await read.run({"path": "note.md"}, call())
    numbers = count(1)
    for name in {*STEPS, "unlink", "link", "ftruncate"}:
        setattr(os, name, _deadly(getattr(os, name), lambda: next(numbers) == step))
    await write.run({"path": "note.md", "content": NEW, "mode": "replace"}, call())


def _deadly(plain: Callable[..., Any], now: Callable[[], bool]) -> Callable[..., Any]:
    write = os.write

    def step(*arguments: Any, **named: Any) -> Any:
        if now():
            if plain is write:
                plain(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **named)

    return step


if __name__ == "__main__":
    asyncio.run(replace(Path(sys.argv[1]), int(sys.argv[2])))
