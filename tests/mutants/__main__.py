"""`python -m tests.mutants [--jobs N] [WORD…]`: break each guard, or those that a word describes, and run its tests.

Each guard has one outcome: killed (a test failed), survived (none did), hung (none ended in time, so none noticed it by
itself), stale (its text does not stand once in its file), or untried (its tests fail with the guard too, or could not run).
Returns 1 unless all are killed, and prints the others with their places.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.mutants.guards import ROOT, Guard, read_guards

SECONDS = 60.0
"""Time for the tests of one guard: less than `tests.waiting.DEADLINE`, which only a test that waits in vain reaches."""

_BYTECODE = "compileall", "-q", "gateway", "plugins", "sessions", "tests"


def main(arguments: list[str]) -> int:
    """Try the guards; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description="Break each guard and see that a test fails.")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="how many at a time")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only guards with one of these in description or path")
    options = parser.parse_args(arguments)
    words: list[str] = options.words
    guards = [guard for guard in read_guards() if not words or any(word in f"{guard.what} {guard.file}" for word in words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exuvia-mutants-") as folder:
        copies = [_copied(Path(folder, str(number))) for number in range(options.jobs)]
        failing = _failing_unbroken(copies[0], guards, options.jobs)
        outcomes = _try_all(copies, guards, failing)
    for guard, outcome in outcomes:
        if outcome != "killed":
            print(f"{outcome}: {guard.file}: {guard.what}: {guard.old.strip().splitlines()[0]}")  # noqa: T201
    counts = Counter(outcome for _, outcome in outcomes)
    table = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("killed", "survived", "hung", "stale", "untried"))
    print(f"{len(guards)} guards: {table}; {(time.monotonic() - began) / 60:.0f} minutes")  # noqa: T201
    return 0 if counts["killed"] == len(guards) else 1


def _copied(folder: Path) -> Path:
    """Copy the files that git knows, and compile them once: a short test would spend most of its time on that."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    subprocess.run([sys.executable, "-m", *_BYTECODE], cwd=folder, check=True)
    return folder


def _failing_unbroken(copy: Path, guards: Iterable[Guard], jobs: int) -> list[str]:
    """Return the tests that fail though no guard is broken: their failing would show nothing."""
    tests = sorted({test for guard in guards for test in guard.tests})
    done = _pytest(copy, "-rfE", "-n", str(jobs), "--dist", "loadfile", *tests, seconds=None)
    lines = done.stdout.decode().splitlines()
    failing = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (0, 1):
        sys.exit(f"pytest ended with {done.returncode} before any guard was broken:\n{done.stdout.decode()}")
    for line in failing:
        print(f"fails with its guards in place: {line}", flush=True)  # noqa: T201
    return failing


def _try_all(copies: list[Path], guards: list[Guard], failing: list[str]) -> list[tuple[Guard, str]]:
    """Try each guard in a copy that is free."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(guard: Guard) -> tuple[Guard, str, float]:
        if any(name.startswith(test) for name in failing for test in guard.tests):
            return guard, "untried", 0.0
        copy, began = free.get(), time.monotonic()
        try:
            return guard, _tried(copy, guard), time.monotonic() - began
        finally:
            free.put(copy)

    outcomes = []
    with ThreadPoolExecutor(len(copies)) as threads:
        for number, (guard, outcome, seconds) in enumerate(threads.map(attempt, guards), 1):
            print(f"{number}/{len(guards)} {outcome}: {guard.what} ({seconds:.0f} s)", flush=True)  # noqa: T201
            outcomes.append((guard, outcome))
    return outcomes


def _tried(copy: Path, guard: Guard) -> str:
    """Return what became of a guard whose text is replaced in this copy while its tests run."""
    place = copy / guard.file
    whole, stamp = place.read_text("utf-8"), place.stat()
    if whole.count(guard.old) != 1:
        return "stale"
    place.write_text(whole.replace(guard.old, guard.new), "utf-8")
    try:
        done = _pytest(copy, "-x", "-n", "0", *guard.tests, seconds=SECONDS)
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        place.write_text(whole, "utf-8")
        os.utime(place, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # so that what was compiled of it counts again
    return {0: "survived", 1: "killed"}.get(done.returncode, "untried")


def _pytest(copy: Path, *arguments: str, seconds: float | None) -> subprocess.CompletedProcess[bytes]:
    """Run tests within a copy. Raises TimeoutExpired when they take too long, after ending all processes they started."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as running:
        try:
            output, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)  # its fixtures end the processes that have a session of their own
            with suppress(subprocess.TimeoutExpired):
                running.wait(10)
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, running.returncode, output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
