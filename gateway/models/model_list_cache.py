"""`HOME/models.json`: what the vendors told of their models when `exuvia models refresh` asked them. It is derived: without
it, the shipped table counts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from gateway.support.errors import sentence_of
from gateway.support.small_files import read_at_most
from plugins.api.models import ModelList
from sessions.files.fsync import sync_folder, write_new

LONGEST = 4 * 1024 * 1024
"""Bytes of the file; more is none of ours."""

MODELS, NAME = 2_000, 200
"""How many models of a vendor are kept, and characters of a name: what a server lists is a stranger's text."""


log = structlog.get_logger("exuvia.models")


class CachedModelList(ModelList, frozen=True, kw_only=True):
    """What a provider's server told, and when, as RFC 3339."""

    at: str


AllTold: TypeAlias = Mapping[str, CachedModelList]
"""By the provider's name."""


def read_told(path: Path) -> tuple[AllTold, str]:
    """What the file says, nothing where there is none; and if it cannot be used, why, as a sentence."""
    try:
        content = read_at_most(path, LONGEST)
        if content is None:
            return {}, f"{path} is longer than {LONGEST:,} bytes."
        return msgspec.json.decode(content, type=dict[str, CachedModelList]), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return {}, f"{path} cannot be used: {sentence_of(error)}"


def told_before(path: Path) -> AllTold:
    """What the file says, for a start: one that cannot be used is named in the log and left."""
    told, unusable = read_told(path)
    if unusable:
        log.warning("models_file_ignored", reason=unusable)
    return told


def write_told(path: Path, told: AllTold) -> None:
    """Put the file in its place (0600), whole or not at all. Raises OSError."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(new, [msgspec.json.format(msgspec.json.encode(told)), b"\n"])
    try:
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def worth_keeping(listed: ModelList, at: str) -> CachedModelList:
    """Of a list, the models of which something is told."""
    told = [(name, limits) for name, limits in listed.models.items() if limits.window or limits.output]
    kept = {name: limits for name, limits in told if 0 < len(name) <= NAME}
    return CachedModelList(address=listed.address, models=dict(list(kept.items())[:MODELS]), at=at)
