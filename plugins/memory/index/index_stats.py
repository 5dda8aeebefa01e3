"""What the index's file holds, counted from outside: it is only read, and whoever else uses it is not disturbed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from plugins.api.memory.source import Source
from sessions.catalog.sqlite import connect_readonly


class IndexStats(msgspec.Struct, frozen=True, kw_only=True):
    """`documents` and `chunks` are by the names of their sources. `embedded` says of how many different texts there are
    vectors, by `provider:model:dimensions`, among them `cached` ones that no chunk needs. `texts` are all different ones,
    `behind` the documents that are not known as they are now, `size` bytes on disk."""

    documents: dict[str, int] = {}
    chunks: dict[str, int] = {}
    texts: int = 0
    embedded: dict[str, int] = {}
    cached: int = 0
    behind: tuple[str, ...] = ()
    size: int = 0


def behind(path: Path, sources: Sequence[Source]) -> list[str]:
    """The documents of some sources that an index does not know as they are now, and those that it knows and that are gone;
    the index is not touched. Raises what `sessions.catalog.sqlite` calls `Error` where it cannot be read."""
    db = connect_readonly(path)
    try:
        marks = ", ".join("?" * len(sources))
        query = f"SELECT path, stamp FROM documents WHERE source IN ({marks})"  # noqa: S608 - no more than marks
        known = dict(db.execute(query, [source.name for source in sources]))
    finally:
        db.close()
    there = {path: stamp for source in sources for path, stamp in source.there(known).stamps.items()}
    return sorted(path for path in there.keys() | known.keys() if there.get(path) != known.get(path))


def holdings(path: Path, sources: Sequence[Source]) -> IndexStats:
    """What is in the file, nothing where there is none. Raises what `sessions.catalog.sqlite` calls `Error` where it is
    harmed."""
    if not path.exists():
        return IndexStats(behind=tuple(sorted(path for source in sources for path in source.there({}).stamps)))
    db = connect_readonly(path)
    try:
        embedded = (
            "SELECT provider || ':' || model || ':' || dimensions, count(*) FROM embeddings"
            " JOIN identities ON identities.id = identity WHERE digest IN (SELECT digest FROM chunks) GROUP BY identity"
        )
        return IndexStats(
            documents=dict(db.execute("SELECT source, count(*) FROM documents GROUP BY source")),
            chunks=dict(db.execute("SELECT source, count(*) FROM chunks GROUP BY source")),
            texts=db.execute("SELECT count(DISTINCT digest) FROM chunks").fetchone()[0],
            embedded=dict(db.execute(embedded)),
            cached=db.execute("SELECT count(*) FROM embeddings WHERE digest NOT IN (SELECT digest FROM chunks)").fetchone()[
                0
            ],
            behind=tuple(behind(path, sources)),
            size=sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*")),
        )
    finally:
        db.close()
