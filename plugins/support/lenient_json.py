"""JSON as servers and models write it: with lone surrogates, cut short, or of another form than was asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sessions.events.codec import replace_surrogates
from sessions.events.messages import clamp_count

T = TypeVar("T")


def count(usage: Any, *names: str) -> int | None:
    """Return the count at this path of names in a usage object; None where there is none, or what is no number."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return clamp_count(usage)


def decoded(decode: Callable[[bytes | str], T], data: bytes) -> T:
    """What a msgspec decoder makes of the data. Lone surrogates, which it refuses, are replaced, and numbers that no machine
    has become null. Raises ValueError."""
    try:
        return decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        try:
            return decode(replace_surrogates(json.dumps(_loaded(data), ensure_ascii=False)))
        except (ValueError, RecursionError) as error:
            raise ValueError("not the JSON that was expected") from error


def _loaded(data: bytes) -> Any:
    return json.loads(data, parse_constant=lambda _: None, parse_float=_number, parse_int=_number)


def _number(digits: str) -> int | float | None:
    """A number that msgspec can read again; None for one that is too large."""
    number = float(digits)
    if not math.isfinite(number):
        return None
    return int(digits) if digits.lstrip("-").isdecimal() else number


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
