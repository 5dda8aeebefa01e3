"""Tolerant JSON decoding for servers and models: lone surrogates, truncated text, unexpected types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from plugins.support.errors import BadAnswer
from plugins.support.http_errors import error_message
from sessions.events.codec import replace_surrogates
from sessions.events.messages import clamp_count

T = TypeVar("T")


def count(usage: Any, *names: str) -> int | None:
    """Return the count at this path of names in a usage object; None where there is none, or what is no number."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return clamp_count(usage)


def decoded(decode: Callable[[bytes | str], T], data: bytes, sender: str = "The provider") -> T:
    """Decode JSON with a msgspec decoder, replacing lone surrogates and turning numbers out of range into null.

    Raises:
        BadAnswer: It is not valid JSON of the expected type; the message names the sender.
    """
    try:
        return decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        try:
            return decode(replace_surrogates(json.dumps(_loaded(data), ensure_ascii=False)))
        except (ValueError, RecursionError) as error:
            raise BadAnswer(f"{sender} sent an invalid part of a reply: {error_message(data[:200])}") from error


def _loaded(data: bytes) -> Any:
    return json.loads(data, parse_constant=lambda _: None, parse_float=_number, parse_int=_number)


def _number(digits: str) -> int | float | None:
    """Return a number that msgspec can decode, or None if it is too large."""
    number = float(digits)
    if not math.isfinite(number):
        return None
    return int(digits) if digits.lstrip("-").isdecimal() else number


def is_json(text: str) -> bool:
    """Return True if the text is a complete JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def as_object(arguments: str) -> dict[str, Any]:
    """Return a call's arguments as an object, which most services require; invalid ones are wrapped as text."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        value = None
    return value if isinstance(value, dict) else {"not_an_object": arguments}
