"""The list of guards."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]


class Guard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One guard of the code, and how it is broken. `old` stands exactly once in `file`; `tests` are arguments of pytest."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_guards() -> list[Guard]:
    """Return all guards."""
    content = tomllib.loads(Path(__file__).with_name("guards.toml").read_text("utf-8"))
    return msgspec.convert(content["guard"], list[Guard])
