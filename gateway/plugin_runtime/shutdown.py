"""A bounded shutdown: whatever plugins left running when the gateway is closed cannot keep the process alive.

A task that swallows its cancellation, a blocked thread or an exit function that never returns would otherwise keep the
process until the service manager kills it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from time import sleep

SECONDS = 3.0
"""Seconds that the process has to end by itself."""


def exit_within(code: int, *, seconds: float = SECONDS) -> None:
    """End the process with this exit code after `seconds`, unless it ended before; what kept it is written to stderr."""
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    threading.Thread(target=_end, args=(code, seconds, left), name="ending", daemon=True).start()


def _end(code: int, seconds: float, tasks: list[str]) -> None:
    sleep(seconds)
    own = {threading.current_thread(), threading.main_thread()}
    threads = [thread.name for thread in threading.enumerate() if thread not in own and not thread.daemon]
    kept = "; ".join(f"{what} {', '.join(names[:5])}" for what, names in (("threads", threads), ("tasks", tasks)) if names)
    sys.stderr.write(f"exuvia: Forced exit: a plugin kept the process alive for {seconds:g} s ({kept or 'unknown'}).\n")
    sys.stderr.flush()
    os._exit(code)
