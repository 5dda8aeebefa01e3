"""The work of `exuvia memory status`: the contents and progress of the index. Read-only; no vectors are requested."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec

from gateway.cli.memory.memory_commands import SearchFailed, opened_memory
from gateway.config.keys import Config, load_config
from gateway.conversations.notes.workspace_memory import chosen_sources
from gateway.support.home import Home
from gateway.support.printable import escaped, printable
from gateway.support.session_status import count_of, span
from plugins.api.memory_settings import SQLITE, MemoryKeys
from plugins.memory.index.backend_lifecycle import LOCAL
from plugins.memory.index.index_stats import IndexStats, holdings
from plugins.memory.search.diagnostics import found_without_vectors
from sessions.catalog.sqlite import Error, lacks_full_text

WELL, BEHIND = 0, 1


def show_status(
    home: Home, file: Path | None, environment: Mapping[str, str], out: TextIO, *, now: datetime, as_json: bool
) -> int:
    """Print the state of the index; return 1 if something is still to be indexed or embedded.

    Raises:
        SearchFailed: The index cannot be read, or is not in SQLite.
    """
    config = load_config(file or home.config, environment=environment, overrides={})
    resting = LOCAL if config.memory.resting == SQLITE and lacks_full_text() else config.memory.resting
    if resting != SQLITE:
        raise SearchFailed(f"The index rests in {resting}, which is not looked into; `exuvia memory index` counts.")
    try:
        held = holdings(home.memory, chosen_sources(home, config))
    except Error as error:
        raise SearchFailed(
            f"The memory index {home.memory} cannot be read: {error}. Delete it, and it is made anew."
        ) from error
    provider = asyncio.run(_provider(home, config, environment))
    at = datetime.fromtimestamp(_last_written(home.memory), UTC) if home.memory.exists() else None
    model = provider.rpartition(":")[0] if provider else None
    left = held.texts - max((n for name, n in held.embedded.items() if name.rpartition(":")[0] == model), default=0)
    told: dict[str, Any] = {
        **msgspec.structs.asdict(held),
        "provider": model,
        "unembedded": left if model else None,
        "cache": config.memory.embedding.cache,
        "updated": at and at.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    if as_json:
        out.write(escaped(msgspec.json.encode(told).decode()) + "\n")
    else:
        lines = _lines(held, model, left, config.memory, None if at is None else (now - at).total_seconds())
        out.write(printable("\n".join(lines)) + "\n")
    return BEHIND if held.behind or (model and left) else WELL


def _lines(held: IndexStats, model: str | None, left: int, keys: MemoryKeys, age: float | None) -> list[str]:
    counted = ", ".join(f"{number:,} of {source}" for source, number in sorted(held.documents.items()))
    chunks = ", ".join(f"{number:,} of {source}" for source, number in sorted(held.chunks.items()))
    written = "there is none yet" if age is None else f"{held.size / 1e6:,.1f} MB, written {span(age)} ago"
    none = f"none, {found_without_vectors(by_words=keys.search.keywords)}"
    vectors = none if model is None else f"{model}, {count_of(left, 'text')} still without"
    lines = [
        f"Index: {written}",
        f"Documents: {sum(held.documents.values()):,}{f' ({counted})' if counted else ''}",
        f"Chunks: {sum(held.chunks.values()):,}{f' ({chunks})' if chunks else ''}",
        f"Vectors: {vectors}",
        *(f"  {count_of(number, 'text')} by {name}" for name, number in held.embedded.items()),
        f"Cache: {count_of(held.cached, 'vector')} of what no note says any more, {keys.embedding.cache:,} at most",
    ]
    if held.behind:
        lines.append(f"Behind: {count_of(len(held.behind), 'document')} changed since, the first is {held.behind[0]}")
    return lines


def _last_written(path: Path) -> float:
    return max(each.stat().st_mtime for each in path.parent.glob(f"{path.name}*"))


async def _provider(home: Home, config: Config, environment: Mapping[str, str]) -> str:
    """Return the current embedding provider as `provider:model:dimensions`; empty if there is none."""
    async with opened_memory(home, config, environment) as memory:
        provider = memory.provider()
        return f"{provider.name}:{provider.model()}:{provider.dimensions()}" if provider else ""
