"""A provider's reply as everybody who asks a model may rely on it."""

from __future__ import annotations

import msgspec

from plugins.api.chat import Reply
from sessions.events.messages import Usage

MOST_TOKENS = 10**9
"""More than any request can have."""


def sound(reply: Reply) -> Reply:
    """Return the reply with fields of the types that they promise, and with counts that one request can have: the sum of
    many must still be a number for every reader. Raises msgspec.ValidationError or TypeError for other fields."""
    checked = msgspec.convert(msgspec.to_builtins(reply), Reply)
    if (usage := checked.usage) is None:
        return checked
    counts = {name: min(getattr(usage, name), MOST_TOKENS) for name in usage.__struct_fields__}
    return msgspec.structs.replace(checked, usage=Usage(**counts))
