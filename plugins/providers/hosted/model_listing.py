"""Which models a server has, from the list that every vendor gives away for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plugins.api.models import Tokens
from plugins.http.client import Timeouts, Transport
from plugins.support.errors import BadAnswer, ProviderError
from plugins.support.http_errors import StatusRefused

BRIEF = Timeouts(connect=5.0, first=15.0, between=15.0, whole=60.0, attempts=1)
"""A person waits for the answer, and whether it comes is the question."""

MUTE = re.compile(
    r"embed|rerank|whisper|transcri|\btts\b|moderation|dall-e|diffusion|-image|\bbge-|\bgte-|\be5-|minilm|realtime|\bsora\b",
    re.I,
)
"""In the names of models that make vectors, pictures or sounds instead of answers."""


async def listed(
    transport: Transport,
    url: str,
    headers: Mapping[str, str],
    *,
    under: str,
    named: str,
    meaning: Callable[[int, bytes], ProviderError],
) -> dict[str, Any]:
    """The entries of a server's list of models by their names: an object whose member `under` lists objects with a member
    `named`. `meaning` is what an error status means there. Raises a ProviderError."""
    try:
        body = await transport.get(url, headers=headers, timeouts=BRIEF)
    except StatusRefused as refused:
        raise meaning(refused.status, refused.body) from refused
    try:
        return {str(entry[named]): entry for entry in msgspec.json.decode(body)[under]}
    except (msgspec.MsgspecError, UnicodeError, RecursionError, LookupError, TypeError) as error:
        raise BadAnswer("What the server gave for a list of its models is none.") from error


def tokens(entry: object, *path: str) -> int | None:
    """A number of tokens in an entry, by the names of the members that lead to it; None if nothing there can be one."""
    for name in path:
        entry = entry.get(name) if isinstance(entry, dict) else None
    try:
        return msgspec.convert(entry, Tokens)
    except msgspec.ValidationError:
        return None
