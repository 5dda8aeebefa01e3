"""How the memory is searched: the form of `[memory]` in the configuration."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Fusion: TypeAlias = Literal["measured", "openclaw", "copaw", "rrf"]
"""The ways to put words and vectors together."""

SourceName: TypeAlias = Literal["notes"]
"""What `memory.sources` chooses from."""

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EmbeddingKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.embedding]`: who turns texts into vectors; `auto` is the first provider that can, `none` keywords alone."""

    provider: _Text = "auto"


class DecayKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.search.temporal_decay]`: whether what is old counts less, and after how many days half."""

    enabled: bool = True
    half_life_days: Annotated[float, msgspec.Meta(gt=0)] = 30.0


class MMRKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.search.mmr]`: whether near-duplicates make room for others; 1 is relevance alone, 0 diversity alone."""

    enabled: bool = True
    weight: _Share = msgspec.field(name="lambda", default=0.7)


class SearchKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.search]`: how many results, out of how many candidates for each, and how they are ranked."""

    max_results: Annotated[int, msgspec.Meta(ge=1, le=50)] = 6
    candidate_multiplier: Annotated[int, msgspec.Meta(ge=1, le=50)] = 4
    min_score: _Share = 0.0
    fusion: Fusion = "measured"
    vector_weight: _Share = 0.7
    text_weight: _Share = 0.3
    temporal_decay: DecayKeys = DecayKeys()
    mmr: MMRKeys = MMRKeys()


class MemoryKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory]`: in what is searched. `extra_paths` are further files and folders with Markdown, absolute or from the
    workspace on."""

    sources: tuple[SourceName, ...] = ("notes",)
    extra_paths: tuple[_Text, ...] = ()
    embedding: EmbeddingKeys = EmbeddingKeys()
    search: SearchKeys = SearchKeys()

    def chosen(self) -> frozenset[str]:
        """The names of the sources that are searched."""
        return frozenset((*self.sources, "extra") if self.extra_paths else self.sources)
