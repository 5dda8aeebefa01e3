"""The messages and tools of a request to a model.

These values are independent of any provider's wire format; each provider plugin encodes them.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import msgspec


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A picture or file, stored by content hash. `sha256` is hexadecimal, `media` the media type, `bytes` the size, `name`
    the sender's file name; `width` and `height` are in pixels, 0 if it is not a picture."""

    sha256: str
    media: str
    bytes: int
    name: str = ""
    width: int = 0
    height: int = 0


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, tag="user", tag_field="role", gc=False):
    """A message from a person."""

    text: str
    attachments: tuple[Attachment, ...] = ()


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model's request to run a tool. `id` is unique within the session; `arguments` is the JSON text as the model wrote
    it, which may be invalid."""

    id: str
    tool: str
    arguments: str


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, tag="assistant", tag_field="role", gc=False):
    """A model's reply. `opaque` is signed reasoning in the provider's own format, to be sent back unchanged."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    opaque: str | None = None


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, tag="tool", tag_field="role", gc=False):
    """The result of the tool call with the same id. `failed` is True if the text is an error."""

    id: str
    tool: str
    text: str
    failed: bool = False


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


MAX_COUNT = 2**53 - 1
"""The largest count: every reader of JSON and MessagePack represents it exactly."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one request as the provider counted them; `cached` is the part of `input` read from its cache. A count out
    of range becomes the nearest bound, 0 or 2**53 - 1."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        # Checked here because providers report anything, and a decoded log may contain it.
        for name in ("input", "output", "cached"):
            if type(value := getattr(self, name)) is not int or not 0 <= value <= MAX_COUNT:
                msgspec.structs.force_setattr(self, name, clamp_count(value) or 0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(input=self.input + other.input, output=self.output + other.output, cached=self.cached + other.cached)


def clamp_count(value: object) -> int | None:
    """Convert a token count to an integer between 0 and `MAX_COUNT`; return None if it is not a number."""
    if isinstance(value, int):
        return min(max(int(value), 0), MAX_COUNT)
    try:
        number = float(value) if isinstance(value, str | float) else math.nan
    except ValueError:
        return None
    return None if math.isnan(number) else int(min(max(number, 0), MAX_COUNT))
