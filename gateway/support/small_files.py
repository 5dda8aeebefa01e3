"""Small files: bounded reads, and durable replacement."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sessions.files.fsync import sync_folder, write_new


def read_at_most(path: Path, most: int) -> bytes | None:
    """Return the file's bytes, or None if there are more than `most`.

    A pipe without a writer reads as empty. Raises OSError.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        os.set_blocking(file.fileno(), True)  # only the opening of a pipe would wait for ever; its writer may be slow
        content = file.read(most + 1)
    return content if len(content) <= most else None


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file (0600) durably, whole or not at all. Raises OSError."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(new, [content])
    try:
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)
