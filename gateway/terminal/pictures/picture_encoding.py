"""Pictures as escape sequences, scaled to the window.

kitty's graphics protocol takes PNG, iTerm2's all four formats. Other pictures, large ones and sixel need Pillow (the extra
`pictures`), which reads untrusted content only within the limits below. Call everything here in a thread.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gateway.terminal.pictures.terminal_graphics import Graphics
from sessions.events.file_types import detect_picture
from sessions.events.vision import PNG

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_BYTES = 20 * 1024 * 1024
"""Bytes of the largest picture that is shown."""

LARGEST_PIXELS = 25_000_000
"""Pixels of the largest picture that is shown: 100 MB when it is decoded."""

SENT_BYTES = 1024 * 1024
"""Bytes of the largest picture that is sent to the terminal as it is, if Pillow can make it smaller."""

COLOURS = 255
"""Colours of a sixel picture; one number stays for transparent pixels."""

CHUNK = 4096
"""Characters of base64 in one sequence of kitty's protocol, its maximum."""

_BAND = 6
_RUN = re.compile(rb"(.)\1{3,}+", re.DOTALL)


class Box(msgspec.Struct, frozen=True):
    """The size of a shown picture, in cells and in pixels."""

    columns: int
    rows: int
    width: int
    height: int


def fit(width: int, height: int, graphics: Graphics, columns: int, rows: int) -> Box:
    """Return the size of a picture within so many cells; it keeps its proportions and is not enlarged."""
    across, down = graphics.cell
    scale = min(1.0, columns * across / width, rows * down / height)
    pixels = max(1, round(width * scale)), max(1, round(height * scale))
    return Box(min(columns, -(-pixels[0] // across)), min(rows, -(-pixels[1] // down)), *pixels)


def encoded(content: bytes, graphics: Graphics, columns: int, rows: int) -> str | None:
    """Return the sequence that shows a picture within so many cells and ends on a new line.

    Returns:
        None if it is no picture of a known format, too large, damaged, or needs Pillow, which is missing.
    """
    picture = detect_picture(content)
    if picture is None or len(content) > LARGEST_BYTES or picture.width * picture.height > LARGEST_PIXELS:
        return None
    box = fit(picture.width, picture.height, graphics, columns, rows)
    if graphics.protocol == "sixel":
        image = _decoded(content, box)
        return None if image is None else _sixel(image)
    fits = graphics.protocol == "iterm" or picture.media == PNG
    if not fits or len(content) > SENT_BYTES:
        image = _decoded(content, box)
        if image is None and not fits:
            return None
        content = content if image is None else _png(image)
    return _kitty(content, box) if graphics.protocol == "kitty" else _iterm(content, box)


def _kitty(content: bytes, box: Box) -> str:
    text = base64.b64encode(content).decode()
    pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    keys = itertools.chain([f"a=T,f=100,q=2,c={box.columns},r={box.rows},"], itertools.repeat("q=2,"))
    more = [1] * (len(pieces) - 1) + [0]
    lines = (f"\x1b_G{key}m={m};{piece}\x1b\\" for key, m, piece in zip(keys, more, pieces, strict=False))
    return "".join(lines) + "\n"


def _iterm(content: bytes, box: Box) -> str:
    size = f"size={len(content)};width={box.columns};height={box.rows};preserveAspectRatio=1"
    return f"\x1b]1337;File=inline=1;{size}:{base64.b64encode(content).decode()}\x07\n"


# --- with Pillow ------------------------------------------------------------------------------------------------------


def _decoded(content: bytes, box: Box) -> Image | None:
    """Return a picture in the size of the box, as RGBA; None if it is damaged, or without Pillow."""
    try:
        from PIL import Image  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
            if image.width * image.height > LARGEST_PIXELS:
                return None
            image.draft("RGB", (box.width, box.height))
            return image.convert("RGBA").resize((box.width, box.height), Image.Resampling.LANCZOS)
    except (OSError, ValueError, SyntaxError, ArithmeticError, LookupError, MemoryError, Image.DecompressionBombError):
        return None  # the errors of its decoders


def _png(image: Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _sixel(image: Image) -> str:
    """Return a picture as sixels (DEC, "VT330/VT340 Programmer Reference Manual", chapter 14)."""
    transparent = image.getchannel("A").point([255 if alpha < 128 else 0 for alpha in range(256)])
    indexed = image.convert("RGB").quantize(COLOURS)
    palette = indexed.getpalette() or []
    indexed.paste(COLOURS, mask=transparent)
    colours = (palette[at : at + 3] for at in range(0, len(palette), 3))
    defined = [f"#{number};2;{r * 100 // 255};{g * 100 // 255};{b * 100 // 255}" for number, (r, g, b) in enumerate(colours)]
    pixels, width = indexed.tobytes(), image.width
    rows = [pixels[at : at + width] for at in range(0, len(pixels), width)]
    bands = b"-".join(_band(rows[at : at + _BAND]) for at in range(0, len(rows), _BAND))
    return f'\x1bP0;1q"1;1;{width};{image.height}{"".join(defined[:COLOURS])}{bands.decode("ascii")}\x1b\\\n'


def _band(rows: list[bytes]) -> bytes:
    """Return up to six rows of pixels, one pass over the band for each of their colours."""
    return b"$".join(_passes(rows))


def _passes(rows: list[bytes]) -> Iterator[bytes]:
    width = len(rows[0])
    for colour in sorted(set(b"".join(rows)) - {COLOURS}):
        bits = 0
        for number, row in enumerate(rows):
            if colour in row:
                bits |= int.from_bytes(row.translate(_bit(colour, number)), "big")
        sixels = bits.to_bytes(width, "big").translate(_SIXELS).rstrip(b"?")
        yield b"#%d" % colour + _RUN.sub(lambda run: b"!%d%b" % (len(run[0]), run[1]), sixels)


_SIXELS = bytes(min(63 + bits, 126) for bits in range(256))
"""The character for the six bits of a column."""


def _bit(colour: int, row: int) -> bytes:
    """Return the table that maps a colour to the bit of a row, and others to 0."""
    table = bytearray(256)
    table[colour] = 1 << row
    return bytes(table)
