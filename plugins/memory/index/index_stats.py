"""Statistics of the index's file, read from outside without disturbing other users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from plugins.api.memory.source import Source
from sessions.catalog.sqlite import connect_readonly


class IndexStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the index.

    `documents` and `chunks` are by source. `embedded` counts the texts with vectors by `provider:model:dimensions`, `cached`
    vectors that no chunk needs, `texts` all distinct texts. `behind` are documents that are not up to date, `size` the bytes
    on disk.
    """

    documents: dict[str, int] = {}
    chunks: dict[str, int] = {}
    texts: int = 0
    embedded: dict[str, int] = {}
    cached: int = 0
    behind: tuple[str, ...] = ()
    size: int = 0


def outdated_documents(path: Path, sources: Sequence[Source]) -> list[str]:
    """Return the documents of sources that are outdated, missing or deleted, without changing the index.

    Raises:
        Error: The index cannot be read (`sessions.catalog.sqlite.Error`).
    """
    db = connect_readonly(path)
    try:
        marks = ", ".join("?" * len(sources))
        query = f"SELECT path, stamp FROM documents WHERE source IN ({marks})"  # noqa: S608 - no more than marks
        known = dict(db.execute(query, [source.name for source in sources]))
    finally:
        db.close()
    current = {path: stamp for source in sources for path, stamp in source.list_documents(known).stamps.items()}
    return sorted(path for path in current.keys() | known.keys() if current.get(path) != known.get(path))


def read_index_stats(path: Path, sources: Sequence[Source]) -> IndexStats:
    """Return the statistics, empty if the file does not exist.

    Raises:
        Error: The index is damaged (`sessions.catalog.sqlite.Error`).
    """
    if not path.exists():
        return IndexStats(behind=tuple(sorted(path for source in sources for path in source.list_documents({}).stamps)))
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
            behind=tuple(outdated_documents(path, sources)),
            size=sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*")),
        )
    finally:
        db.close()
