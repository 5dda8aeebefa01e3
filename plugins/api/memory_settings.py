"""How the memory is searched: the form of `[memory]` in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from plugins.api.embedding import EmbeddingProvider
from plugins.api.facts.fact_settings import FactKeys
from plugins.support.addresses import ServerAddress, web_fault
from plugins.support.secrets import Secret

Fusion: TypeAlias = Literal["measured", "openclaw", "copaw", "rrf"]
"""The ways to put words and vectors together."""

SourceName: TypeAlias = Literal["notes", "sessions"]
"""What `memory.sources` chooses from."""

AUTO, NONE = "auto", "none"
"""Words of `memory.embedding.provider` that name no provider."""

SQLITE = "sqlite"
"""The backend that is always there, and that `memory.backend = "auto"` means."""

COMPATIBLE = "openai"
"""The provider that speaks to every server of its kind."""

LOCAL = "local"
"""The provider that runs a model on this machine."""

SPELLED = "ollama"
"""The provider whose server may be named without a scheme."""

P = TypeVar("P", bound=EmbeddingProvider)

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EmbeddingKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.embedding]`: who turns texts into vectors, and on whose account; `auto` is the first provider that can,
    `none` keywords alone. Without a `model` it is the provider's usual one. `dimensions` is asked for where a model can
    give fewer than all; `batch_size` is how many texts one request holds at most, `max_input_length` how many characters
    one of them; None is what is known of the model. `local_model_path` is a model of this machine. `cache` is how many
    vectors are kept of what no note says any more, in case it comes back."""

    provider: _Text = AUTO
    model: _Text | None = None
    local_model_path: _Text | None = None
    base_url: ServerAddress | None = None
    api_key: Secret | None = None
    headers: dict[str, Secret] = {}
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=8192)] | None = None
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=2048)] | None = None
    max_input_length: Annotated[int, msgspec.Meta(ge=64)] | None = None
    cache: Annotated[int, msgspec.Meta(ge=0)] = 50_000

    def __post_init__(self) -> None:
        if self.provider == AUTO and self.wanted is None and (self.model or self.dimensions or self.headers):
            raise ValueError("must name its provider where it says a model, dimensions or headers")
        if self.provider != SPELLED and web_fault(self.base_url or ""):
            raise ValueError("must have a base_url that begins with http:// or https://")

    @property
    def wanted(self) -> str | None:
        """The name of the one provider that is meant; None for the first that can. An account without a name is one of an
        OpenAI-compatible service, as everywhere."""
        if self.provider != AUTO:
            return self.provider
        if self.local_model_path:
            return LOCAL
        return COMPATIBLE if self.api_key or self.base_url else None

    @property
    def _is_followed(self) -> bool:
        """Whether others come after the one that is `wanted`: behind a model file that may not be there."""
        return self.provider == AUTO and bool(self.local_model_path)

    @property
    def _is_account(self) -> bool:
        """Whether this has an account."""
        return bool(self.api_key or self.base_url)

    def chosen(self, providers: Mapping[str, P]) -> P | None:
        """Who makes vectors, of those that there are, in the order in which they are asked; None for nobody. Behind a model
        file it is the account, if there is one, or else whoever can."""
        wanted: tuple[str | None, ...] = (self.wanted,)
        if self._is_followed:
            wanted = (LOCAL, COMPATIBLE) if self._is_account else (None,)
        meant = (provider for name, provider in providers.items() if None in wanted or name in wanted)
        return next((provider for provider in meant if provider.model()), None)

    def meant_for(self, name: str) -> EmbeddingKeys:
        """What of this a provider learns: nobody is given another's key, address or model."""
        nobodys: dict[str, Any] = dict.fromkeys(("model", "base_url", "api_key", "dimensions"), None) | {"headers": {}}
        if self._is_followed and self._is_account:
            if name == LOCAL:  # named, so that no other model of this machine comes before the account
                return msgspec.structs.replace(self, provider=LOCAL, **nobodys)
            if name == COMPATIBLE:
                return msgspec.structs.replace(self, local_model_path=None)
        elif self.wanted == name:
            return self
        return msgspec.structs.replace(self, provider=AUTO, local_model_path=None, **nobodys)

    def passed_over(self, providers: Mapping[str, EmbeddingProvider]) -> str:
        """Return a sentence if a configured model file cannot be used and another model makes the vectors, else ""."""
        if not self._is_followed:
            return ""
        used, local = self.chosen(providers), providers.get(LOCAL)
        if used is None or (used is local and used.model() == Path(self.local_model_path or "").stem.lower()):
            return ""
        why = local.explain_default() if local else "memory.embedding.local_model_path cannot be used"
        return f"{why}: vectors are made by {used.name}:{used.model()} until that is mended and the gateway restarts."


class DecayKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.search.temporal_decay]`: whether what is old counts less, after how many days half, and how much of a score
    age may take at most: None is what suits the fusion."""

    enabled: bool | None = None
    half_life_days: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    share: _Share | None = None

    def taken(self, fusion: Fusion) -> float:
        """How much of a score age may take. All of it as the seeds say; with "measured" as much as lets the newer of two
        equals win and leaves what is old to be found (docs/memory.md, "How well it finds")."""
        return (0.05 if fusion == "measured" else 1.0) if self.share is None else self.share


class MMRKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.search.mmr]`: whether near-duplicates make room for others, None is what suits the fusion; 1 is relevance
    alone, 0 diversity alone."""

    enabled: bool | None = None
    weight: _Share = msgspec.field(name="lambda", default=0.7)


class SearchKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.search]`: how many results, out of how many candidates for each, and how they are ranked. Without `keywords`
    it is by vectors alone. `meaning` is what vectors count in the fusion "measured", 1 as much as those of the bundled
    model; None is what is known of the model that makes them."""

    keywords: bool = True
    max_results: Annotated[int, msgspec.Meta(ge=1, le=50)] = 6
    candidate_multiplier: Annotated[int, msgspec.Meta(ge=1, le=50)] = 4
    min_score: _Share = 0.0
    fusion: Fusion = "measured"
    vector_weight: _Share = 0.7
    text_weight: _Share = 0.3
    meaning: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None
    temporal_decay: DecayKeys = DecayKeys()
    mmr: MMRKeys = MMRKeys()

    def wants(self, enabled: bool | None) -> bool:
        """Return whether decay or diversity is wanted: CoPaw has neither, so that its fusion has them only if they are asked
        for."""
        return self.fusion != "copaw" if enabled is None else enabled


class RecallKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.recall]`: what stands behind a person's message of what the memory has for it: how it is looked for, how much
    there is of it at most, in tokens too. `min_cosine` None is what was measured of the model."""

    mode: Literal["hybrid", "keywords", "off"] = "hybrid"
    max_results: Annotated[int, msgspec.Meta(ge=1, le=20)] = 4
    max_tokens: Annotated[int, msgspec.Meta(ge=100, le=100_000)] = 1000
    min_cosine: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None


class MemoryKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory]`: where the index rests, in what is searched. `extra_paths` are further files and folders with Markdown,
    absolute or from the workspace on."""

    backend: _Text = AUTO
    sources: tuple[SourceName, ...] = ("notes", "sessions")
    extra_paths: tuple[_Text, ...] = ()
    embedding: EmbeddingKeys = EmbeddingKeys()
    search: SearchKeys = SearchKeys()
    recall: RecallKeys = RecallKeys()
    facts: FactKeys = FactKeys()

    def __post_init__(self) -> None:
        if self.embedding.provider == NONE and not self.search.keywords:
            raise ValueError("must search by words or by vectors: search.keywords is false and embedding.provider is none")

    @property
    def resting(self) -> str:
        """The name of the backend that is meant."""
        return SQLITE if self.backend == AUTO else self.backend

    def chosen(self) -> frozenset[str]:
        """The names of the sources that are searched."""
        return frozenset((*self.sources, "extra") if self.extra_paths else self.sources)
