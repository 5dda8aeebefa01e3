"""The `search` tool, which asks a search service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from plugins.api.tool import ApprovalRequest, ToolContext, ToolOutput
from plugins.http.client import Transport
from plugins.support.errors import ProviderError, ToolFailed
from plugins.support.fencing import quoted
from plugins.tools.file_changes import convert
from plugins.tools.web.fetch import AS_DATA
from plugins.tools.web.provenance import SEARCH
from plugins.tools.web.web_settings import SearchKeys
from sessions.events.messages import ToolDefinition


class SearchArguments(msgspec.Struct, frozen=True):
    """Arguments of the `search` tool."""

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]


class Search:
    """The `search` tool, which asks the search service that the operator chose."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name=SEARCH,
        description=(
            "Search the web. Returns titles, URLs and short passages; read a page with `fetch`. The query goes to a search"
            " service: do not put private data into it."
        ),
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "maxLength": 400, "description": "The words to search for."}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, transport: Transport, keys: Callable[[], SearchKeys], environment: Mapping[str, str]) -> None:
        self._transport = transport
        self._keys = keys
        self._environment = environment

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Return None: a query goes to nobody but the service that the operator chose.

        Raises:
            ToolFailed: The arguments are not valid.
        """
        convert(arguments, SearchArguments)
        return None

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the results for a query.

        Raises:
            ToolFailed: The service cannot be asked.
        """
        from plugins.tools.web.search_services import SearchService  # noqa: PLC0415 - a start does not need it

        query = convert(arguments, SearchArguments).query
        service = SearchService(self._keys(), self._environment)
        if missing := service.missing():
            raise ToolFailed(missing)
        try:
            results = await service.search(self._transport, query)
        except ProviderError as error:
            raise ToolFailed(str(error)) from error
        if not results:
            return ToolOutput(text="The search service found nothing.")
        lines = (f"{number}. {each.title}\n{each.url}\n{each.passage}".strip() for number, each in enumerate(results, 1))
        # The query is not repeated: the URLs in this text count as named, and the model wrote the query.
        return ToolOutput(text=f"{AS_DATA}\n\n{quoted(chr(10).join(lines), 'search results')}")
