"""Requests for a server's list of models, which cost nothing at any vendor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plugins.api.models import Tokens
from plugins.http.client import Timeouts, Transport
from plugins.support.errors import BadAnswer, ProviderError
from plugins.support.http_errors import StatusRefused

LIST_TIMEOUTS = Timeouts(connect=5.0, first=15.0, between=15.0, whole=60.0, attempts=1)
"""The timeouts of such requests. A person waits for the result, so there is one attempt."""

NON_CHAT_MODEL = re.compile(
    r"embed|rerank|whisper|transcri|\btts\b|moderation|dall-e|diffusion|-image|\bbge-|\bgte-|\be5-|minilm|realtime|\bsora\b",
    re.I,
)
"""Matches the names of models that produce vectors, images or audio."""


async def fetch_model_list(
    transport: Transport,
    url: str,
    headers: Mapping[str, str],
    *,
    list_field: str,
    name_field: str,
    error_for: Callable[[int, bytes], ProviderError],
) -> dict[str, Any]:
    """Return the entries of a server's list of models by their names. `list_field` is the field of the response with the
    list, `name_field` that of an entry with the name; `error_for` returns the error for a status and its body. Raises a
    ProviderError."""
    try:
        body = await transport.get(url, headers=headers, timeouts=LIST_TIMEOUTS)
    except StatusRefused as refused:
        raise error_for(refused.status, refused.body) from refused
    try:
        return {str(entry[name_field]): entry for entry in msgspec.json.decode(body)[list_field]}
    except (msgspec.MsgspecError, UnicodeError, RecursionError, LookupError, TypeError) as error:
        raise BadAnswer("The server's list of models is not valid.") from error


def token_count(entry: object, *path: str) -> int | None:
    """Return the number of tokens at a path of field names in an entry; None if there is no valid one."""
    for name in path:
        entry = entry.get(name) if isinstance(entry, dict) else None
    try:
        return msgspec.convert(entry, Tokens)
    except msgspec.ValidationError:
        return None
