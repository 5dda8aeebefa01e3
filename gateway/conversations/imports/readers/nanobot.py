"""The folder of nanobot, `~/.nanobot`: `sessions/**/*.jsonl`, `cron/jobs.json`, and the workspace with notes and skills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway.conversations.imports.readers.import_values import LeftOut, SourceInvalid, SourceItem
from gateway.conversations.imports.readers.linear_messages import MessageCollector, jobs_of, json_lines
from gateway.conversations.imports.readers.source_text import calls_in, clean, local_moment
from gateway.conversations.imports.readers.source_workspace import files_below, notes_in, skills_in_folder


def read_nanobot(path: Path) -> Iterator[SourceItem]:
    """Yield what a folder holds. Raises SourceInvalid."""
    root = path / ".nanobot" if (path / ".nanobot").is_dir() else path
    workspace = root / "workspace" if (root / "workspace").is_dir() else root
    folders = [each for each in dict.fromkeys((root / "sessions", workspace / "sessions")) if each.is_dir()]
    if not folders and workspace == root:
        raise SourceInvalid(f"{path} has neither sessions nor a workspace; it is no folder of nanobot.")
    for folder in folders:
        for name, file in files_below(folder):
            if name.endswith(".jsonl"):
                yield from _conversation(file, name)
    if workspace != root:
        yield from notes_in(workspace, passing=("sessions", "skills", "cron"))
    yield from skills_in_folder(workspace / "skills")
    for place in dict.fromkeys((root / "cron", workspace / "cron")):
        yield from jobs_of(place / "jobs.json", "nanobot")


def _conversation(file: Path, name: str) -> Iterator[SourceItem]:
    key, began, collected = "", "", MessageCollector(name)
    try:
        for line in json_lines(file):
            if line.get("_type") == "metadata":
                key, began = clean(line.get("key"), 100), local_moment(line.get("created_at"))
            elif line.get("role") == "tool":
                collected.add_result(line.get("tool_call_id"), line.get("content"))
            else:
                content, calls = line.get("content"), calls_in(line.get("content"), line.get("tool_calls"))
                collected.add(line.get("role"), content, at=local_moment(line.get("timestamp")), calls=calls)
    except OSError as error:
        yield LeftOut(kind="conversations", reason=error.strerror or str(error), name=name)
        return
    yield from collected.items(key or file.stem, at=began, name=key or file.stem)
