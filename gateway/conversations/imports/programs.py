"""The reader of each program, imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from gateway.conversations.imports.import_files import FileReader
from gateway.conversations.imports.readers.export_files import ExportFiles
from gateway.conversations.imports.readers.import_values import Reader

PROGRAMS = {
    "openclaw": "openclaw.read_openclaw",
    "qwenpaw": "qwenpaw.read_qwenpaw",
    "copaw": "qwenpaw.read_qwenpaw",
    "coclaw": "coclaw.read_coclaw",
    "nanobot": "nanobot.read_nanobot",
    "hermes": "hermes.read_hermes",
    "chatgpt": "chatgpt.read_chatgpt",
    "claude": "claude.read_claude",
    "llm": "llm_logs.read_llm",
    "open-webui": "open_webui.read_open_webui",
}

WITH_FILES = ("chatgpt", "claude", "llm", "open-webui")
"""The programs whose conversations name files by their places."""

FAMILY = {"copaw": "qwenpaw"}
"""The program under which conversations are known, where two names mean the same one."""


def reader_of(program: str) -> Reader:
    """Return the reader of a program, one of the names of `exuvia import`."""
    module, _, name = PROGRAMS[program].partition(".")
    return cast("Reader", getattr(import_module(f"gateway.conversations.imports.readers.{module}"), name))


class SourceReader(FileReader, Protocol):
    """Reads the files of a source until it is closed."""

    def close(self) -> None:
        """Close what is open."""
        ...


def files_of(program: str, path: Path) -> SourceReader | None:
    """Return the files that the conversations of a program name; None if they name none. Raises SourceInvalid."""
    if program not in WITH_FILES:
        return None
    if program == "llm":
        from gateway.conversations.imports.readers.llm_logs import LogAttachments  # noqa: PLC0415 - as its reader

        return LogAttachments(path)
    if program == "open-webui":
        from gateway.conversations.imports.readers.open_webui import uploads_of  # noqa: PLC0415 - as its reader

        path = uploads_of(path)
        return ExportFiles(path) if path.is_dir() else None
    return ExportFiles(path)
