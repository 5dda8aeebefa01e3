"""`HOME/models.json`: the model limits that `exuvia models refresh` fetched from the vendors.

The file is derived: without it, the limits shipped with Exuvia apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from gateway.support.errors import sentence_of
from gateway.support.small_files import read_at_most
from plugins.api.models import ModelList
from sessions.files.fsync import replace_file

LONGEST = 4 * 1024 * 1024
"""Bytes of the largest file that is read."""

MODELS, NAME = 2_000, 200
"""Models that are kept of one vendor, and characters of a model's name: a server's list is untrusted input."""


log = structlog.get_logger("exuvia.models")


class CachedModelList(ModelList, frozen=True, kw_only=True):
    """The models that a provider's server reported, and when, in RFC 3339."""

    at: str


CachedModelLists: TypeAlias = Mapping[str, CachedModelList]
"""Lists by the provider's name."""


def read_model_lists(path: Path) -> tuple[CachedModelLists, str]:
    """Return the file's content, empty if there is no file, and an error message if it cannot be used."""
    try:
        content = read_at_most(path, LONGEST)
        if content is None:
            return {}, f"{path} is longer than {LONGEST:,} bytes."
        return msgspec.json.decode(content, type=dict[str, CachedModelList]), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return {}, f"{path} cannot be used: {sentence_of(error)}"


def load_model_lists(path: Path) -> CachedModelLists:
    """Return the file's content at startup; a file that cannot be used is logged and ignored."""
    lists, unusable = read_model_lists(path)
    if unusable:
        log.warning("models_file_ignored", reason=unusable)
    return lists


def write_model_lists(path: Path, lists: CachedModelLists) -> None:
    """Replace the file atomically (mode 0600). Raises OSError."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(lists)) + b"\n")


def cacheable(listed: ModelList, at: str) -> CachedModelList:
    """Return a list reduced to the models with known limits."""
    known = [(name, limits) for name, limits in listed.models.items() if limits.window or limits.output]
    kept = {name: limits for name, limits in known if 0 < len(name) <= NAME}
    return CachedModelList(address=listed.address, models=dict(list(kept.items())[:MODELS]), at=at)
