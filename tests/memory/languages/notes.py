"""What the memory is asked in many languages: notes of ours, one a language and a number, and questions about them.

An `exact` question shares a word with its note, perhaps in another form; a `cross` question is in another language.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note, and what it answers."""

    note: str
    text: str
    exact: str | None = None
    cross: str | None = None

    @property
    def path(self) -> str:
        return f"memory/{self.note}.md"


def read_notes() -> list[Note]:
    lines = Path(__file__).with_name("notes.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Note) for line in lines]
