"""A small JSON file that is replaced durably, for what must survive a restart: an offset, a token, a session id."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import structlog

from sessions.files.fsync import replace_file

MAX_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a file that is read."""

log = structlog.get_logger("exuvia.plugins")


class StateFile:
    """A JSON object in a file of a plugin. Its folder is created if it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saving = asyncio.Lock()

    async def load(self) -> dict[str, Any]:
        """Return the object; an empty one if the file does not exist.

        A file that cannot be decoded is logged and renamed to `NAME.damaged`, and the object is empty.

        Raises:
            OSError: The file cannot be read.
        """
        return await asyncio.to_thread(self._load)

    async def save(self, state: dict[str, Any]) -> None:
        """Replace the object, whole or not at all, and return once it is durable. Calls at the same time are in order.

        Raises:
            TypeError, ValueError: The object is not JSON.
            OSError: The file cannot be written; it has the earlier object.
        """
        content = json.dumps(state).encode()
        async with self._saving:
            writing = asyncio.ensure_future(asyncio.to_thread(replace_file, self._path, content))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])  # the next save must not be overtaken by this one
                raise

    def _load(self) -> dict[str, Any]:
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        try:
            if len(content) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
            state = json.loads(content)
            if not isinstance(state, dict):
                raise TypeError("it is not an object")
        except (ValueError, TypeError, RecursionError) as error:
            damaged = self._path.with_name(f"{self._path.name}.damaged")
            self._path.replace(damaged)
            log.error(
                "state_file_damaged", file=str(self._path), reason=str(error) or "it is not JSON", moved_to=str(damaged)
            )
            return {}
        return state
