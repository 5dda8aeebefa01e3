"""An end in time: what plugins left running when everything of the gateway is closed does not keep the process.

A task that swallows its cancellation, a thread that blocks, a function for the exit of Python that never returns: each would
keep the process for ever, and a service manager would have to kill it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from time import sleep

SECONDS = 3.0
"""So long the process may take to end by itself."""


def end_in_time(code: int, *, seconds: float = SECONDS) -> None:
    """From now on the process has so many seconds, then it is ended with this exit code; who kept it is said."""
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    threading.Thread(target=_end, args=(code, seconds, left), name="ending", daemon=True).start()


def _end(code: int, seconds: float, tasks: list[str]) -> None:
    sleep(seconds)
    own = {threading.current_thread(), threading.main_thread()}
    threads = [thread.name for thread in threading.enumerate() if thread not in own and not thread.daemon]
    kept = "; ".join(f"{what} {', '.join(names[:5])}" for what, names in (("threads", threads), ("tasks", tasks)) if names)
    sys.stderr.write(f"exuvia: The gateway is ended; a plugin kept the process for {seconds:g} s ({kept or 'unknown'}).\n")
    sys.stderr.flush()
    os._exit(code)
