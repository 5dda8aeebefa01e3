"""Which models a server has, from the list that every vendor gives away for nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plugins.errors import BadAnswer, ProviderError
from plugins.refusals import StatusRefused
from plugins.transport import Patience, Transport

BRIEF = Patience(connect=5.0, first=15.0, between=15.0, attempts=1)
"""A person waits for the answer, and whether it comes is the question."""


async def listed(
    transport: Transport,
    url: str,
    headers: Mapping[str, str],
    *,
    under: str,
    named: str,
    meaning: Callable[[int, bytes], ProviderError],
) -> list[str]:
    """The names in a server's list of models: an object whose member `under` lists objects with a member `named`.
    `meaning` is what an error status means there. Raises a ProviderError."""
    try:
        body = await transport.get(url, headers=headers, patience=BRIEF)
    except StatusRefused as refused:
        raise meaning(refused.status, refused.body) from refused
    try:
        return [str(entry[named]) for entry in msgspec.json.decode(body)[under]]
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError) as error:
        raise BadAnswer("What the server gave for a list of its models is none.") from error
