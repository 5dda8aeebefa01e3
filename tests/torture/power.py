"""A power failure: after a kill, files keep what was synced, and only some of what was not."""

from __future__ import annotations

import random
from pathlib import Path


def lose_unsynced(log: Path, dice: random.Random) -> int:
    """Take from the files that `log` (written by `preload.c`) names a random part of what was never synced: bytes at the
    end, and names that are not durable in their folder. The process has ended. Returns how many files lost something."""
    if not log.exists():
        return 0
    synced: dict[str, int] = {}
    made: dict[str, None] = {}
    moved: dict[str, str] = {}
    for line in log.read_text("utf-8", errors="surrogateescape").splitlines():
        kind, _, rest = line.partition(" ")
        match kind:
            case "C":
                made[rest] = None
                synced[rest] = 0
            case "R":
                old, _, new = rest.partition("\t")
                synced[new] = synced.pop(old, 0)
                made.pop(old, None)
                moved[new] = old
            case "S":
                size, _, path = rest.partition(" ")
                synced[path] = int(size)
            case "D":
                made = {path: None for path in made if str(Path(path).parent) != rest}
                moved = {path: old for path, old in moved.items() if str(Path(path).parent) != rest}
    lost = sum(_cut(Path(path), size, dice) for path, size in synced.items())
    lost += sum(_vanish(Path(path), dice) for path in made)
    lost += sum(_move_back(Path(path), Path(old), dice) for path, old in moved.items())
    log.write_text("".join(f"S {Path(path).stat().st_size} {path}\n" for path in synced if Path(path).is_file()))
    return lost


def _cut(path: Path, synced: int, dice: random.Random) -> bool:
    if not path.is_file() or (size := path.stat().st_size) <= synced:
        return False
    kept = dice.randint(synced, size)
    with path.open("r+b") as file:
        file.truncate(kept)
        if dice.random() < 0.3:
            file.truncate(size)  # the length was durable before the content: zeros
    return True


def _vanish(path: Path, dice: random.Random) -> bool:
    if not path.is_file() or dice.random() < 0.5:
        return False
    path.unlink()
    return True


def _move_back(path: Path, old: Path, dice: random.Random) -> bool:
    if not path.is_file() or dice.random() < 0.5:
        return False
    path.rename(old)
    return True
