"""Pictures in requests: what each vendor's models take, what a picture costs there, and its bytes as JSON.

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
    """Tokens of a picture that is fitted into a square of 2048 pixels, its shorter side then into 768, and cut into tiles of
    512: `base` and so many for `each`."""
    shrink = min(1.0, 2048 / max(width, height))
    shrink *= min(1.0, 768 / (min(width, height) * shrink))
    return base + each * ceil(width * shrink / 512) * ceil(height * shrink / 512)


def patches(most: int, factor: float, width: int, height: int) -> int:
    """Tokens of a picture that is cut into patches of 32 pixels, made smaller where those are more than `most`, each
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
"""What a picture costs, by the beginning of the model's name, the longer one first; None for models that see none."""


def openai_sight(model: str) -> VisionSupport | None:
    """What a model at OpenAI itself takes. One that is too new for the list sees: all new ones do."""
    plain = model.removeprefix("ft:")
    known = [cost for name, cost in _OPENAI.items() if plain.startswith(name)]
    cost = known[0] if known else partial(patches, 2500, 1.2)
    return VisionSupport(tokens=cost) if cost else None


# --- Anthropic --------------------------------------------------------------------------------------------------------

ANTHROPIC_BYTES = 5 * 1024 * 1024 * 3 // 4
"""Bytes of one picture: its base64 may have 5 MiB."""
_SHARP_FOUR = ("claude-opus-4-7", "claude-opus-4-8")
_FORMER = ("claude-3", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4")


def squares(side: int, most: int, width: int, height: int) -> int:
    """Tokens of a picture that is made smaller until its longer side has at most `side` pixels and it is covered by at most
    `most` squares of 28 pixels."""
    shrink = min(1.0, side / max(width, height))
    return min(most, ceil(width * shrink / 28) * ceil(height * shrink / 28))


_COARSE = VisionSupport(tokens=partial(squares, 1568, 1568), picture_bytes=ANTHROPIC_BYTES, side=8000)
_SHARP = VisionSupport(tokens=partial(squares, 2576, 4784), picture_bytes=ANTHROPIC_BYTES, side=8000)


def anthropic_sight(model: str) -> VisionSupport:
    """What a model takes. More than 20 pictures may be sent, but then none of 2000 pixels or more: 20 is our count."""
    return _COARSE if model.startswith(_FORMER) and not model.startswith(_SHARP_FOUR) else _SHARP


# --- Gemini -----------------------------------------------------------------------------------------------------------


def crops(width: int, height: int) -> int:
    """Tokens of a picture in Gemini 2: 258 for a small one, else for each crop; a crop's side is two thirds of the shorter
    one, between 256 and 768 pixels."""
    if max(width, height) <= 384:
        return 258
    unit = min(768, max(256, int(min(width, height) / 1.5)))
    return 258 * ceil(width / unit) * ceil(height / unit)


def _always(tokens: int, _width: int, _height: int) -> int:
    return tokens


_GEMINI_2 = VisionSupport(tokens=crops, media=(PNG, JPEG, WEBP))
_GEMINI_3 = VisionSupport(tokens=partial(_always, 1120), media=(PNG, JPEG, WEBP))


def gemini_sight(model: str) -> VisionSupport | None:
    """What a model takes: no GIF. From Gemini 3 on every picture costs the same at the resolution that is not chosen."""
    plain = model.removeprefix("models/")
    if plain.startswith(("gemma-3-1b", "gemma-3-270m")):
        return None
    return _GEMINI_2 if plain.startswith(("gemini-1", "gemini-2")) else _GEMINI_3


# --- open models ------------------------------------------------------------------------------------------------------

_SEEING = re.compile(
    r"llava|vision|-vl|[23]\.?5?vl|pixtral|moondream|minicpm-[ov]|internvl|gemma-?[34](?!-?n?[:-](1b|270m))|llama-?4"
    r"|mistral-small-?[23]|gpt-4o|gpt-4\.1|gpt-5|claude-|gemini-|qwen3\.[5-9]|kimi-k2\.[5-9]|glm-4\.[56]v"
)
"""What stands in the names of models that see, wherever they run."""

_OPEN = VisionSupport(tokens=partial(_always, 1_600), media=(PNG, JPEG))
"""No page says what a picture costs there: open models use between 256 and this. PNG and JPEG every such server reads."""


def open_sight(model: str, told: bool | None) -> VisionSupport | None:
    """What a model on some server takes: `told` says whether it sees, or None to go by its name."""
    sees = _SEEING.search(model.lower()) is not None if told is None else told
    return _OPEN if sees else None


# --- on the wire ------------------------------------------------------------------------------------------------------


def sent_with(message: UserMessage, pictures: Mapping[str, bytes]) -> list[tuple[Attachment, bytes]]:
    """The pictures of a message with their base64, as far as the request has it."""
    return [(each, pictures[each.sha256]) for each in message.attachments if each.sha256 in pictures]


def quoted(base64: bytes) -> msgspec.Raw:
    """Base64 as a JSON text. There is nothing in it to escape, and no second look at megabytes."""
    return msgspec.Raw(b'"%s"' % base64)


def data_url(picture: Attachment, base64: bytes) -> msgspec.Raw:
    """A picture as a `data:` address, as a JSON text."""
    return msgspec.Raw(b'"data:%s;base64,%s"' % (picture.media.encode(), base64))
