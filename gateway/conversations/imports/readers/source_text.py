"""Texts, times and calls of tools as other programs write them. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from gateway.conversations.imports.readers.import_values import SourceCall, SourceFile
from sessions.events.codec import replace_surrogates
from sessions.store.log_writer import stamp

T = TypeVar("T")

LONGEST_TEXT = 1024 * 1024
"""Maximum characters of a message: a line of a journal has at most 2 MiB. Escapes can double a text, so such a text is
measured in bytes when it is written."""

LONGEST_ARGUMENTS = 256 * 1024
"""Maximum characters of the arguments of a call."""

_FILES = ("image", "image_url", "audio", "video", "file", "data", "input_image", "input_file")
_NO_TOOL_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(\.\d{6})\d+")


def moment(value: object) -> str:
    """Return a time in RFC 3339 and UTC, or "" if it is unknown or absurd.

    Args:
        value: Seconds, milliseconds, microseconds or nanoseconds since the epoch as a number or its text, or ISO 8601, in
            UTC where it names no zone.
    """
    found = _of_text(value) if isinstance(value, str) else _of_number(value)
    return stamp(found) if found is not None and _EARLIEST <= found < _LATEST else ""


def local_moment(value: object) -> str:
    """Return a time as `moment` does, but one that names no zone is in that of this machine."""
    try:
        return moment(datetime.fromisoformat(str(value)).astimezone().isoformat())
    except (ValueError, OverflowError):
        return moment(value)


def _of_text(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(_FRACTION.sub(r"\1", text.strip()))
    except ValueError:
        try:
            return _of_number(float(text))
        except ValueError:
            return None
    try:
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError:
        return None


def _of_number(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    seconds = float(value)
    for _ in range(3):
        if seconds < 1e11:  # the year 5138 in seconds, 1973 in milliseconds
            break
        seconds /= 1000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def clean(value: object, limit: int = LONGEST_TEXT) -> str:
    """Return a text without lone surrogates, NULs and surrounding blank lines, cut to a length; "" for anything else."""
    if not isinstance(value, str):
        return ""
    return replace_surrogates(value[:limit]).replace("\0", "").strip()


def decoded(data: bytes, type_: type[T]) -> T:
    """Decode JSON as a type. Lone surrogates are replaced. Raises ValueError with a sentence's end."""
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as error:
        raise ValueError(f"it has not the known form ({str(error)[:120]})") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _leniently(data, type_)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _leniently(data: bytes, type_: type[T]) -> T:
    """Decode JSON with what msgspec refuses: lone surrogates, NaN, and bytes that are not UTF-8."""
    try:
        return msgspec.convert(_without_surrogates(json.loads(data.decode("utf-8", "replace"))), type_)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except msgspec.ValidationError as error:
        raise ValueError(f"it has not the known form ({str(error)[:120]})") from error
    except ValueError as error:
        raise ValueError("it is not valid JSON") from error


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {replace_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return value


def texts_of(content: object) -> list[str]:
    """Return the texts of a message's content in the form of the OpenAI and Anthropic APIs: a text, or a list of blocks of
    which those of type `text` count."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [
        block["text"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") in ("text", "input_text", "output_text", None)
        and isinstance(block.get("text"), str)
    ]


def call_of(tool: object, arguments: object, id_: object = "") -> SourceCall:
    """Return a call of a tool, without its result. Its name is made one that every model's API accepts, and arguments that
    are no JSON object become one."""
    name = _NO_TOOL_NAME.sub("_", clean(tool, 200)).strip("_")[:64] or "tool"
    text = clean(arguments, LONGEST_ARGUMENTS) if isinstance(arguments, str) else _as_json(arguments)
    return SourceCall(tool=name, arguments=text if _is_object(text) else _as_json({"input": text}), id=clean(id_, 200))


def _as_json(value: object) -> str:
    return msgspec.json.encode({} if value is None else value).decode()


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def calls_in(content: object, calls: object = None) -> list[SourceCall]:
    """Return the calls of a reply: those in its content, in the form of the Anthropic API or of OpenClaw, and a list in the
    form of the OpenAI API, which may be JSON."""
    found = [
        call_of(block.get("name"), block.get("input", block.get("arguments")), block.get("id"))
        for block in _objects(content)
        if block.get("type") in ("tool_use", "toolCall", "tool_call")
    ]
    for each in _objects(_decoded_list(calls)):
        function = each.get("function")
        fields = function if isinstance(function, dict) else each
        found.append(call_of(fields.get("name"), fields.get("arguments"), each.get("id")))
    return found


def reasoning_of(content: object) -> str:
    """Return the visible reasoning in a message's content, in the form of the Anthropic API."""
    texts = (clean(block.get("thinking")) for block in _objects(content) if block.get("type") == "thinking")
    return "\n\n".join(filter(None, texts))


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _decoded_list(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return decoded(value.encode("utf-8", "replace"), Any)
    except ValueError:
        return None


def output_of(content: object) -> str:
    """Return the output of a tool as text: a text, the texts of blocks, or JSON."""
    if isinstance(content, list | str):
        return "\n\n".join(filter(None, map(clean, texts_of(content))))
    return _as_json(content) if isinstance(content, dict) else ""


def inline_file(url: object, name: object = "") -> SourceFile | None:
    """Return the file of a data URL; None for other values."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, comma, data = url.partition(",")
    media, _, coding = head.removeprefix("data:").rpartition(";")
    return _of_base64(data, media, name) if comma and coding == "base64" else None


def _of_base64(data: object, media: object, name: object) -> SourceFile | None:
    try:
        content = base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return None
    return SourceFile(name=clean(name, 200), media=clean(media, 100), content=content) if content else None


def inline_files(content: object) -> Iterator[SourceFile | None]:
    """Yield the pictures and files in a message's content, in the form of the OpenAI and Anthropic APIs and of OpenClaw;
    None for each whose bytes are elsewhere."""
    for block in _objects(content):
        if block.get("type") not in _FILES:
            continue
        named, source = block.get("image_url"), block.get("source")
        fields = source if isinstance(source, dict) else block
        url = named.get("url") if isinstance(named, dict) else named
        media = fields.get("media_type") or fields.get("mimeType")
        name = block.get("name") or block.get("filename")
        yield inline_file(url or fields.get("url"), name) or _of_base64(fields.get("data"), media, name)
