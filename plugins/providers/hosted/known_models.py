"""Known properties of embedding models, from the table `models.toml` beside this module."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from plugins.api.plugin_services import Purpose

TABLE = Path(__file__).with_name("models.toml")

OPEN = "open"
"""The table of open-weight models, under whatever name a server lists them."""


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table: the length of the vectors, the most tokens of a text (`tokens`) and of a request (`total`), and
    the prefixes of queries and notes. 0 is unknown."""

    dimensions: int = 0
    tokens: int = 0
    total: int = 0
    query: str = ""
    note: str = ""

    def prefix(self, purpose: Purpose) -> str:
        """Return the prefix of a text for this purpose."""
        return self.query if purpose == "query" else self.note


def known_model(vendor: str, model: str) -> KnownModel:
    """Return the row of a vendor's model or of an open-weight model; an empty one if there is none."""
    name, tables = model.lower(), _tables()
    own = {prefix: row for prefix, row in tables.get(vendor, {}).items() if name.startswith(prefix)}
    matches = own or {part: row for part, row in tables[OPEN].items() if part in name}
    return matches[max(matches, key=len)] if matches else KnownModel()


@cache
def _tables() -> dict[str, dict[str, KnownModel]]:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, dict[str, KnownModel]])
