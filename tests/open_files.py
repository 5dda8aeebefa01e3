"""Open files and watched folders of this process, as Linux lists them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path


def open_below(*folders: Path) -> list[str]:
    """Return the open files and folders of this process that are in or below the given folders.

    A count of all descriptors would include those of other threads, which open and close files at any moment.
    """
    inside = [str(folder.resolve()) for folder in folders]
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if any(target == folder or target.startswith(f"{folder}/") for folder in inside):
                found.append(target)
    return sorted(found)


def watched_inodes() -> list[int]:
    """Return the inode of each folder that this process watches, as often as it does."""
    found = []
    for descriptor in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):
            found += [int(inode, 16) for inode in re.findall(r"^inotify wd:\w+ ino:(\w+)", descriptor.read_text(), re.M)]
    return found
