"""The web tools as a set that follows the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from plugins.api.context import Clock
from plugins.api.tool import Tool
from plugins.http.client import Transport
from plugins.tools.web.fetch import Fetch
from plugins.tools.web.web_search import Search
from plugins.tools.web.web_settings import FetchKeys, SearchKeys


class WebTools:
    """`fetch` and `search`, as far as they are configured. Use as an async context manager, which ends the extraction.

    Args:
        fetch_keys: Returns the present section `[tools.fetch]`.
        search_keys: Returns the present section `[tools.search]`.
        clock: For the age of cached pages.
        transport: For the search service.
        environment: Where the usual variables of keys are.
    """

    def __init__(
        self,
        fetch_keys: Callable[[], FetchKeys],
        search_keys: Callable[[], SearchKeys],
        *,
        clock: Clock,
        transport: Transport,
        environment: Mapping[str, str],
    ) -> None:
        self._fetch_keys = fetch_keys
        self._search_keys = search_keys
        self._fetch = Fetch(clock, lambda: fetch_keys().private_hosts)
        self._search = Search(transport, search_keys, environment)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._fetch.close()

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools that the configuration enables."""
        found: dict[str, Tool] = {}
        if self._fetch_keys().enabled:
            found[Fetch.definition.name] = self._fetch
        if self._search_keys().provider != "none":
            found[Search.definition.name] = self._search
        return found
