"""`exuvia`, with some constants divided, for a soak: `python -m tests.channels.compressed run …`.

The variable TIMERS names the constants as MODULE.NAME, separated by commas, and FACTOR says by how much. At SIGUSR1 the
number of tasks, by what they run, is written to the file that TASKS names.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import exuvia


def main() -> int:
    """Run the command line."""
    for name in filter(None, os.environ["TIMERS"].split(",")):
        module, _, constant = name.rpartition(".")
        setattr(import_module(module), constant, getattr(import_module(module), constant) / float(os.environ["FACTOR"]))
    signal.signal(signal.SIGUSR1, lambda *_: _write_tasks(Path(os.environ["TASKS"])))
    return exuvia.main()


def _write_tasks(path: Path) -> None:
    kinds = Counter(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    written = path.with_suffix(".new")
    written.write_text(json.dumps(kinds))
    written.rename(path)


if __name__ == "__main__":
    sys.exit(main())
