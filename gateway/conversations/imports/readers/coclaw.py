"""The memory of CoClaw, and its conversations where it has any.

The memory is a file for each day (`2026-03-23.json`) and `longterm.json`, or one exported document. Conversations are stored
as those of OpenClaw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.conversations.imports.readers.import_values import LeftOut, SourceFact, SourceInvalid, SourceItem
from gateway.conversations.imports.readers.linear_messages import json_file
from gateway.conversations.imports.readers.openclaw import read_openclaw
from gateway.conversations.imports.readers.source_workspace import files_below

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_LISTS = ("entries", "daily", "longterm", "longTerm", "memories")


def read_coclaw(path: Path) -> Iterator[SourceItem]:
    """Yield the facts of a memory, or of an exported document. Raises SourceInvalid."""
    found = False
    if path.is_dir() and ((path / "agents").is_dir() or (path / ".openclaw").is_dir()):
        found = True
        yield from read_openclaw(path)
    for name, file in files_below(path) if path.is_dir() else ((path.name, path),):
        base = name.rpartition("/")[2]
        daily = _DAY.fullmatch(base) is not None
        if not daily and base != "longterm.json" and file != path:
            continue
        found = True
        try:
            document = json_file(file)
        except ValueError as error:
            yield LeftOut(kind="facts", reason=str(error), name=name)
            continue
        for entry, layer in _entries(document, "daily" if daily else "longterm"):
            yield SourceFact(entry={**_known(entry), "layer": layer})
    if not found:
        raise SourceInvalid(f"{path} holds no longterm.json and no daily log; it is no memory of CoClaw.")


def _entries(document: object, layer: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(document, dict):
        for name in _LISTS:
            inside = "daily" if name == "daily" else "longterm" if name.lower() == "longterm" else layer
            yield from _entries(document.get(name) or [], inside)
        return
    for entry in document if isinstance(document, list) else []:
        if isinstance(entry, dict):
            yield entry, layer


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a fact. The tags of a workspace are dropped: they name a folder of the other program."""
    names = ("id", "content", "type", "importance", "createdAt", "lastUsedAt", "pinned")
    tags = entry.get("tags")
    kept = [tag for tag in tags if isinstance(tag, str) and not tag.startswith("ws:")] if isinstance(tags, list) else []
    return {**{name: entry[name] for name in names if name in entry}, "tags": kept}
