"""What models are told about facts, in each language: a language is one file in `texts`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).with_name("texts")


class Language(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts of a language. `extraction` has a place for `{most}`, how many facts a turn may leave."""

    extraction: str
    person: str
    assistant: str
    question: str
    distillation: str
    kept: str
    new: str
    distill_question: str


@cache
def language(code: str) -> Language:
    """The texts of `en` or `zh`."""
    return msgspec.convert(tomllib.loads((FOLDER / f"{code}.toml").read_text("utf-8")), Language)
