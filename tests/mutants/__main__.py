"""`python -m tests.mutants [WORD…]`: break each guard, or those with a word in their description, and run its tests.

Returns 1 if any survives, and prints each with its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.guards import ROOT, Guard, read_guards

SECONDS = 300.0
"""Time for the tests of one guard. Tests that hang without it have noticed it too."""


def main(words: list[str]) -> int:
    """Try the guards; returns the exit code."""
    guards = [guard for guard in read_guards() if not words or any(word in f"{guard.what} {guard.file}" for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        copy = _copied(Path(folder))
        for number, guard in enumerate(guards, 1):
            began = time.monotonic()
            outcome = _tried(copy, guard)
            if outcome != "killed":
                survivors.append((guard, outcome))
            print(f"{number}/{len(guards)} {outcome}: {guard.what} ({time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201
    for guard, outcome in survivors:
        print(f"{outcome}: {guard.file}: {guard.what}: {guard.old.strip().splitlines()[0]}")  # noqa: T201
    print(f"{len(guards) - len(survivors)} of {len(guards)} guards are held by a test.")  # noqa: T201
    return 1 if survivors else 0


def _copied(folder: Path) -> Path:
    """A copy of the files that git knows, with this environment."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    # Compiled once: most of the time of a short test would go into compiling all modules for each guard anew.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "gateway", "plugins", "sessions"], cwd=folder, check=True)
    return folder


def _tried(copy: Path, guard: Guard) -> str:
    """`killed`, `survived`, or what else became of it."""
    place = copy / guard.file
    whole, stamp = place.read_text("utf-8"), place.stat()
    if whole.count(guard.old) != 1:
        return "stale"
    place.write_text(whole.replace(guard.old, guard.new), "utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *guard.tests]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "killed"
    finally:
        place.write_text(whole, "utf-8")
        os.utime(place, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # so that what was compiled of it counts again
    return {0: "survived", 1: "killed"}.get(done.returncode, f"not tried (pytest ended with {done.returncode})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
