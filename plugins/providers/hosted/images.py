"""Images in requests: what each vendor's models accept, what an image costs there, and its JSON.

From the vendors' own pages, as of 2026: OpenAI, "Images and vision" (calculating costs); Anthropic, "Images and vision"
(general limits, visual tokens); Google, "Image understanding" (technical details) and "Media resolution"; Ollama, "Vision".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil, sqrt

import msgspec

from sessions.events.messages import Attachment, UserMessage
from sessions.events.vision import JPEG, PNG, WEBP, VisionSupport

Cost = Callable[[int, int], int]

# --- OpenAI -----------------------------------------------------------------------------------------------------------


def tiles(base: int, each: int, width: int, height: int) -> int:
    """Return the tokens of an image that is scaled to fit a square of 2048 pixels, then to a shorter side of 768, and cut
    into tiles of 512 pixels: `base` plus `each` per tile."""
    shrink = min(1.0, 2048 / max(width, height))
    shrink *= min(1.0, 768 / (min(width, height) * shrink))
    return base + each * ceil(width * shrink / 512) * ceil(height * shrink / 512)


def patches(most: int, factor: float, width: int, height: int) -> int:
    """Return the tokens of an image that is cut into patches of 32 pixels, scaled down to at most `most` patches, each
    counted `factor` times."""
    count = ceil(width / 32) * ceil(height / 32)
    if count > most:
        shrink = sqrt(most * 32 * 32 / (width * height))
        across, down = width * shrink / 32, height * shrink / 32
        shrink = min(max(1, int(across)) / across, max(1, int(down)) / down)
        count = min(most, ceil(across * shrink - 1e-6) * ceil(down * shrink - 1e-6))
    return ceil(count * factor)


_OPENAI: dict[str, Cost | None] = {
    "gpt-3": None,
    "gpt-4o-audio": None,
    "gpt-4o-mini": partial(tiles, 2833, 5667),
    "gpt-4o": partial(tiles, 85, 170),
    "chatgpt-4o": partial(tiles, 85, 170),
    "gpt-4.1-mini": partial(patches, 1536, 1.62),
    "gpt-4.1-nano": partial(patches, 1536, 2.46),
    "gpt-4.1": partial(tiles, 85, 170),
    "gpt-4.5": partial(tiles, 85, 170),
    "gpt-4-turbo": partial(tiles, 85, 170),
    "gpt-4": None,
    "gpt-5-mini": partial(patches, 1536, 1.62),
    "gpt-5-nano": partial(patches, 1536, 2.46),
    "gpt-5.4-mini": partial(patches, 1536, 1.62),
    "gpt-5.4-nano": partial(patches, 1536, 2.46),
    "gpt-5.1": partial(tiles, 70, 140),
    "gpt-5.": partial(patches, 2500, 1.2),
    "gpt-5": partial(tiles, 70, 140),
    "gpt-oss": None,
    "o1-mini": None,
    "o1-preview": None,
    "o1": partial(tiles, 75, 150),
    "o3-mini": None,
    "o3": partial(tiles, 75, 150),
    "o4-mini": partial(patches, 1536, 1.72),
}
"""The cost of an image by the prefix of the model's name, longer prefixes first; None for models without vision."""


def openai_vision(model: str) -> VisionSupport | None:
    """Return what a model of OpenAI accepts. Models that are newer than the list have vision, as all recent ones do."""
    plain = model.removeprefix("ft:")
    known = [cost for name, cost in _OPENAI.items() if plain.startswith(name)]
    cost = known[0] if known else partial(patches, 2500, 1.2)
    return VisionSupport(tokens=cost) if cost else None


# --- Anthropic --------------------------------------------------------------------------------------------------------

ANTHROPIC_BYTES = 5 * 1024 * 1024 * 3 // 4
"""The largest image in bytes: its base64 may have 5 MiB."""
_HIGH_RES_FOUR = ("claude-opus-4-7", "claude-opus-4-8")
_OLDER = ("claude-3", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4")


def squares(side: int, most: int, width: int, height: int) -> int:
    """Return the tokens of an image that is scaled down to at most `side` pixels on its longer side and at most `most`
    squares of 28 pixels."""
    shrink = min(1.0, side / max(width, height))
    return min(most, ceil(width * shrink / 28) * ceil(height * shrink / 28))


_STANDARD = VisionSupport(tokens=partial(squares, 1568, 1568), picture_bytes=ANTHROPIC_BYTES, side=8000)
_HIGH_RES = VisionSupport(tokens=partial(squares, 2576, 4784), picture_bytes=ANTHROPIC_BYTES, side=8000)


def anthropic_vision(model: str) -> VisionSupport:
    """Return what a model accepts. More than 20 images may be sent only below 2000 pixels, so 20 is the limit here."""
    return _STANDARD if model.startswith(_OLDER) and not model.startswith(_HIGH_RES_FOUR) else _HIGH_RES


# --- Gemini -----------------------------------------------------------------------------------------------------------


def crops(width: int, height: int) -> int:
    """Return the tokens of an image in Gemini 2: 258 for a small one, else for each crop, whose side is two thirds of the
    shorter side, between 256 and 768 pixels."""
    if max(width, height) <= 384:
        return 258
    unit = min(768, max(256, int(min(width, height) / 1.5)))
    return 258 * ceil(width / unit) * ceil(height / unit)


def _constant(tokens: int, _width: int, _height: int) -> int:
    return tokens


_GEMINI_2 = VisionSupport(tokens=crops, media=(PNG, JPEG, WEBP))
_GEMINI_3 = VisionSupport(tokens=partial(_constant, 1120), media=(PNG, JPEG, WEBP))


def gemini_vision(model: str) -> VisionSupport | None:
    """Return what a model accepts: no GIF. From Gemini 3 on every image costs the same at the default resolution."""
    plain = model.removeprefix("models/")
    if plain.startswith(("gemma-3-1b", "gemma-3-270m")):
        return None
    return _GEMINI_2 if plain.startswith(("gemini-1", "gemini-2")) else _GEMINI_3


# --- open models ------------------------------------------------------------------------------------------------------

_VISION_NAMES = re.compile(
    r"llava|vision|-vl|[23]\.?5?vl|pixtral|moondream|minicpm-[ov]|internvl|gemma-?[34](?!-?n?[:-](1b|270m))|llama-?4"
    r"|mistral-small-?[23]|gpt-4o|gpt-4\.1|gpt-5|claude-|gemini-|qwen3\.[5-9]|kimi-k2\.[5-9]|glm-4\.[56]v"
)
"""Matches names of models with vision, on whichever server."""

_OPEN = VisionSupport(tokens=partial(_constant, 1_600), media=(PNG, JPEG))
"""The cost is not documented: open models use between 256 tokens and this. Every such server reads PNG and JPEG."""


def open_model_vision(model: str, has_vision: bool | None) -> VisionSupport | None:
    """Return what an open-weight model accepts; `has_vision` None decides by its name."""
    if has_vision is None:
        has_vision = _VISION_NAMES.search(model.lower()) is not None
    return _OPEN if has_vision else None


# --- on the wire ------------------------------------------------------------------------------------------------------


def available_images(message: UserMessage, pictures: Mapping[str, bytes]) -> list[tuple[Attachment, bytes]]:
    """Return the images of a message with their base64, as far as the request contains it."""
    return [(each, pictures[each.sha256]) for each in message.attachments if each.sha256 in pictures]


def json_string(base64: bytes) -> msgspec.Raw:
    """Return base64 as a JSON string. It needs no escaping, which saves a pass over megabytes."""
    return msgspec.Raw(b'"%s"' % base64)


def data_url(picture: Attachment, base64: bytes) -> msgspec.Raw:
    """Return an image as a `data:` URL, as a JSON string."""
    return msgspec.Raw(b'"data:%s;base64,%s"' % (picture.media.encode(), base64))
