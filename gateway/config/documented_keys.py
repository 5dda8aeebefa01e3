"""The keys of `config.example.toml`, the only place in which the sentence of each key is written.

The page of the configuration in `docs/` and the settings of the console are made of it and of the schema.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

EXAMPLE = Path(__file__).with_name("config.example.toml")
"""The shipped example. A key has its default, or it is commented and has an example; its sentence is the line above."""

KEY_LINE = re.compile(r"^(#?)([a-z_]+) = ", re.MULTILINE)


class DocumentedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the example. `line` is its line there, and `written` the value in it, which is the default if the line is not
    commented."""

    section: str
    name: str
    sentence: str
    line: str
    written: str

    @property
    def is_default(self) -> bool:
        """True if the value is the key's default, False if it is only an example of one."""
        return not self.line.startswith("#")

    @property
    def value(self) -> Any:
        """The value."""
        return tomllib.loads(f"value = {self.written}")["value"]


@cache
def documented_keys() -> tuple[DocumentedKey, ...]:
    """Return the keys of the example. The settings of a kind of channel do not have the key `kind`. Blocks."""
    keys, section, above = [], "", ""
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if header := re.fullmatch(r"#?\[{1,2}([^][]+)\]{1,2}", line):
            section = header[1]
        elif (key := KEY_LINE.match(line)) and not _repeats_kind(section, key[2]):
            written = line[key.end() :]
            keys.append(
                DocumentedKey(section=section, name=key[2], sentence=above.removeprefix("# "), line=line, written=written)
            )
        above = line
    return tuple(keys)


def _repeats_kind(section: str, name: str) -> bool:
    return name == "kind" and section.startswith("channels.") and section != "channels.home"
