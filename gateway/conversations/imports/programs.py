"""The reader of each program, imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import cast

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

FAMILY = {"copaw": "qwenpaw"}
"""The program under which conversations are known, where two names mean the same one."""


def reader_of(program: str) -> Reader:
    """Return the reader of a program, one of the names of `exuvia import`."""
    module, _, name = PROGRAMS[program].partition(".")
    return cast("Reader", getattr(import_module(f"gateway.conversations.imports.readers.{module}"), name))
