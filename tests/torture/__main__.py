"""`python -m tests.torture [--seed N] [--minutes M]`: random faults over random operations, and a check of the history.

Returns 1 where something is wrong, and keeps the folder of the run then.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.torture.report import report
from tests.torture.run import Run


def main(arguments: list[str]) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make torture ARGS=…", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="the seed; by default a new one")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 10 minutes by default")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="exuvia-torture-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, in {folder}", flush=True)  # noqa: T201
    run = Run(folder, options.seed, options.minutes * 60)
    findings = asyncio.run(run.run())
    print(report(run, findings))  # noqa: T201
    if findings:
        print(f'Kept: {folder}. Again: make torture ARGS="--seed {options.seed} --minutes {options.minutes:g}"')  # noqa: T201
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
