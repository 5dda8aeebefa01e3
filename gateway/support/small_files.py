"""Bounded reads of small files."""

from __future__ import annotations

import os
from pathlib import Path


def read_at_most(path: Path, most: int) -> bytes | None:
    """Return the file's bytes, or None if there are more than `most`.

    A pipe without a writer reads as empty. Raises OSError.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        os.set_blocking(file.fileno(), True)  # only the opening of a pipe would wait for ever; its writer may be slow
        content = file.read(most + 1)
    return content if len(content) <= most else None
