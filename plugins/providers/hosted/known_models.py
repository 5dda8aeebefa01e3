"""What is known of embedding models without asking anyone: the table `models.toml` beside this module."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from plugins.api.services import Purpose

TABLE = Path(__file__).with_name("models.toml")

OPEN = "open"
"""The table of models whose weights anybody may run, under whatever name a server gives them."""


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the table: how long the vectors are, how many tokens a text and a request may have, and what is written
    before a question and before a note. 0 is unknown."""

    dimensions: int = 0
    tokens: int = 0
    total: int = 0
    query: str = ""
    note: str = ""

    def before(self, purpose: Purpose) -> str:
        """What is written before a text that is for this."""
        return self.query if purpose == "query" else self.note


def known_model(vendor: str, model: str) -> KnownModel:
    """What is known of a vendor's model, or of one that anybody may run."""
    name, tables = model.lower(), _tables()
    own = {beginning: line for beginning, line in tables.get(vendor, {}).items() if name.startswith(beginning)}
    fitting = own or {part: line for part, line in tables[OPEN].items() if part in name}
    return fitting[max(fitting, key=len)] if fitting else KnownModel()


@cache
def _tables() -> dict[str, dict[str, KnownModel]]:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, dict[str, KnownModel]])
