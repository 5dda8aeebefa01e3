"""The `[memory]` section of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from plugins.api.embedding import EmbeddingProvider
from plugins.support.addresses import ServerAddress, web_fault
from plugins.support.secrets import Secret

Fusion: TypeAlias = Literal["measured", "openclaw", "copaw", "rrf"]
"""The ways to combine keyword and vector scores."""

SourceName: TypeAlias = Literal["notes", "sessions"]
"""The values of `memory.sources`."""

Formula: TypeAlias = Literal["measured", "coclaw"]
"""How facts are ranked for recall; see `plugins.facts.fact_recall`."""

AUTO, NONE = "auto", "none"
"""Values of `memory.embedding.provider` that name no provider."""

SQLITE = "sqlite"
"""The default backend, which is always available."""

COMPATIBLE = "openai"
"""The provider for all OpenAI-compatible servers."""

LOCAL = "local"
"""The provider that runs a model on this machine."""

SCHEMELESS = "ollama"
"""The provider whose server address may have no scheme."""

P = TypeVar("P", bound=EmbeddingProvider)

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EmbeddingKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.embedding]` section.

    Attributes:
        provider: The name of a provider; `auto` for the first available one, `none` for keyword search only.
        model: The model; None for the provider's default.
        local_model_path: A model file on this machine.
        base_url: The address of the service.
        api_key: The API key.
        headers: Extra HTTP headers.
        dimensions: The requested length of vectors, for models that can shorten them.
        batch_size: The maximum number of texts in a request; None for the model's default.
        max_input_length: The maximum length of a text in characters; None for the model's default.
        cache: The number of vectors to keep that no note needs any more, in case the text returns.
    """

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
        if self.provider != SCHEMELESS and web_fault(self.base_url or ""):
            raise ValueError("must have a base_url that begins with http:// or https://")

    @property
    def wanted(self) -> str | None:
        """The name of the configured provider; None for the first available one.

        An account without a provider name means an OpenAI-compatible service.
        """
        if self.provider != AUTO:
            return self.provider
        if self.local_model_path:
            return LOCAL
        return COMPATIBLE if self.api_key or self.base_url else None

    @property
    def _has_fallbacks(self) -> bool:
        """True if other providers follow the `wanted` one, because its model file may not exist."""
        return self.provider == AUTO and bool(self.local_model_path)

    @property
    def _has_account(self) -> bool:
        return bool(self.api_key or self.base_url)

    def chosen(self, providers: Mapping[str, P]) -> P | None:
        """Return the provider to use, or None if none is available.

        Providers are tried in order. After a model file comes the configured account, or, without one, any available
        provider.
        """
        wanted: tuple[str | None, ...] = (self.wanted,)
        if self._has_fallbacks:
            wanted = (LOCAL, COMPATIBLE) if self._has_account else (None,)
        meant = (provider for name, provider in providers.items() if None in wanted or name in wanted)
        return next((provider for provider in meant if provider.model()), None)

    def for_provider(self, name: str) -> EmbeddingKeys:
        """Return the settings for one provider. Keys, addresses and models of other providers are removed."""
        removed: dict[str, Any] = dict.fromkeys(("model", "base_url", "api_key", "dimensions"), None) | {"headers": {}}
        if self._has_fallbacks and self._has_account:
            if name == LOCAL:  # named, so that no other model of this machine comes before the account
                return msgspec.structs.replace(self, provider=LOCAL, **removed)
            if name == COMPATIBLE:
                return msgspec.structs.replace(self, local_model_path=None)
        elif self.wanted == name:
            return self
        return msgspec.structs.replace(self, provider=AUTO, local_model_path=None, **removed)

    def fallback_notice(self, providers: Mapping[str, EmbeddingProvider]) -> str:
        """Return a sentence if a configured model file cannot be used and another model makes the vectors, else ""."""
        if not self._has_fallbacks:
            return ""
        used, local = self.chosen(providers), providers.get(LOCAL)
        if used is None or (used is local and used.model() == Path(self.local_model_path or "").stem.lower()):
            return ""
        why = local.explain_default() if local else "memory.embedding.local_model_path cannot be used"
        return f"{why}: vectors are made by {used.name}:{used.model()} until that is fixed and the gateway restarts."


class DecayKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.search.temporal_decay]` section.

    Attributes:
        enabled: Reduce the scores of old documents; None for the fusion's default.
        half_life_days: The age at which the reduction reaches half of its maximum.
        share: The largest part of a score that age can remove; None for the fusion's default.
    """

    enabled: bool | None = None
    half_life_days: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    share: _Share | None = None

    def taken(self, fusion: Fusion) -> float:
        """Return the largest part of a score that age can remove.

        1 for the fusions of the original projects; for "measured" just enough that the newer of two equal results wins
        (docs/memory.md, "How a search ranks").
        """
        return (0.02 if fusion == "measured" else 1.0) if self.share is None else self.share


class MMRKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.search.mmr]` section: maximal marginal relevance. `lambda` 1 is pure relevance, 0 pure diversity."""

    enabled: bool | None = None
    weight: _Share = msgspec.field(name="lambda", default=0.7)


class SearchKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.search]` section.

    Attributes:
        keywords: Search by keywords; if false, by vectors only.
        max_results: The maximum number of results.
        candidate_multiplier: The number of candidates per result.
        min_score: The minimum score.
        fusion: How keyword and vector scores are combined.
        vector_weight: The weight of vectors for the fusions `openclaw` and `copaw`.
        text_weight: The weight of keywords for the same fusions.
        meaning: The weight of vectors for the fusion "measured", relative to the bundled model; None for the model's
            default.
        temporal_decay: Reduces the scores of old documents.
        mmr: Diversifies the results.
    """

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
        """Return `enabled`, or the fusion's default if it is None: "copaw" uses neither decay nor diversity."""
        return self.fusion != "copaw" if enabled is None else enabled


class RecallKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.recall]` section: memory that is added to a person's message.

    Attributes:
        mode: How the memory is searched.
        max_results: The maximum number of results.
        max_tokens: The maximum size of the added text.
        min_cosine: The minimum cosine similarity; None for the model's default.
    """

    mode: Literal["hybrid", "keywords", "off"] = "hybrid"
    max_results: Annotated[int, msgspec.Meta(ge=1, le=20)] = 8
    max_tokens: Annotated[int, msgspec.Meta(ge=100, le=100_000)] = 1000
    min_cosine: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None


class FactKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.facts]` section.

    Attributes:
        auto_extract: Extract facts from every turn.
        model: The model for extraction; None for the session's.
        quiet_seconds: Idle seconds of a session before extraction starts.
        max_facts: The maximum number of facts extracted from a turn.
        distill_threshold: Distill after this many daily facts; 0 to disable.
        distill_interval_hours: Distill after this many hours; 0 to disable.
        retention_days: Days that daily facts are kept.
        cap: The maximum number of long-term facts.
        stale_after_days: Days without use after which a fact's weight is halved.
        formula: How facts are ranked for recall.
    """

    auto_extract: bool = True
    model: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    quiet_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    max_facts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    distill_threshold: Annotated[int, msgspec.Meta(ge=0)] = 20
    distill_interval_hours: Annotated[float, msgspec.Meta(ge=0)] = 24.0
    retention_days: Annotated[int, msgspec.Meta(ge=1)] = 30
    cap: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    stale_after_days: Annotated[float, msgspec.Meta(gt=0)] = 14.0
    formula: Formula = "measured"


class MemoryKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory]` section.

    Attributes:
        backend: The name of the memory backend.
        sources: The sources to search.
        extra_paths: Further Markdown files and folders, absolute or relative to the workspace.
        embedding: The embedding provider.
        search: Search parameters.
        recall: Recall parameters.
        facts: Parameters of the facts.
    """

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
    def backend_name(self) -> str:
        """The name of the configured backend."""
        return SQLITE if self.backend == AUTO else self.backend

    def enabled_sources(self) -> frozenset[str]:
        """Return the names of the sources to search."""
        return frozenset((*self.sources, "extra") if self.extra_paths else self.sources)
