"""The configuration sections `[tools.fetch]` and `[tools.search]`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from plugins.support.addresses import HostName, WebAddress
from plugins.support.secrets import Secret

SearchProvider: TypeAlias = Literal["none", "searxng", "brave", "tavily", "exa"]


class FetchKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.fetch]`: reading pages of the web. `private_hosts` are hosts of the own network that may be read, too."""

    enabled: bool = True
    private_hosts: tuple[HostName, ...] = ()


class SearchKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.search]`: the search service, its key or address, and how many results it is asked for.

    An `api_key` that is None is read from the service's usual variable, a `base_url` that is empty means the service's own.
    """

    provider: SearchProvider = "none"
    api_key: Secret | None = None
    base_url: WebAddress = ""
    max_results: Annotated[int, msgspec.Meta(ge=1, le=20)] = 8
