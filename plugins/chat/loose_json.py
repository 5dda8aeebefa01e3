"""JSON as servers and models write it: with lone surrogates, cut short, or of another form than was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sessions.wire import carriable

T = TypeVar("T")


def decoded(decode: Callable[[bytes | str], T], data: bytes) -> T:
    """What a msgspec decoder makes of the data. Lone surrogates, which it refuses, are replaced. Raises ValueError."""
    try:
        return decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        try:
            return decode(carriable(json.dumps(json.loads(data), ensure_ascii=False)))
        except (ValueError, RecursionError) as error:
            raise ValueError("not the JSON that was expected") from error


def is_json(text: str) -> bool:
    """Whether the text is a whole JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def as_object(arguments: str) -> dict[str, Any]:
    """A call's arguments as the object that most services demand; what is none is shown as the text that was written."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        value = None
    return value if isinstance(value, dict) else {"not_an_object": arguments}
