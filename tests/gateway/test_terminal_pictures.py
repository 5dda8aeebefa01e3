"""Pictures in `exuvia chat`: what the terminal can show, the bytes that show it, and captions everywhere else."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import pty
import re
import struct
import sys
import threading
import tty
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gateway.terminal.client.connection import DownloadFailed
from gateway.terminal.pictures import picture_encoding
from gateway.terminal.pictures.picture_encoding import CHUNK, encoded, fit
from gateway.terminal.pictures.shown_pictures import DRAWN, CaptionedStream, Pictures, ShownFile, captioned, files_of
from gateway.terminal.pictures.terminal_graphics import Detected, Graphics, Protocol, detect
from gateway.terminal.prompt_ui import parsed_keys
from sessions.events.events import CallRef, ModelReplied, ToolReturned
from sessions.events.messages import Attachment
from tests.gateway.gateways import gateway
from tests.gateway.person import Terminal
from tests.gateway.test_prompt_ui import environment
from tests.pictures import png
from tests.waiting import DEADLINE

CTRL_D, ENTER = "\x04", "\r"
KITTY, ITERM, SIXEL = Graphics("kitty"), Graphics("iterm"), Graphics("sixel")
KITTY_OK, NO_SIXEL, HAS_SIXEL = b"\x1b_Gi=31;OK\x1b\\", b"\x1b[?62;22c", b"\x1b[?62;4;22c"


# --- what the terminal can show ---------------------------------------------------------------------------------------


def detected(answers: bytes, environment: Mapping[str, str]) -> tuple[Detected, bytes]:
    """Return what is detected on a terminal that answers this to the first query, and the queries."""
    near, far = pty.openpty()
    queries: list[bytes] = []

    def answer() -> None:
        queries.append(os.read(near, 4096))
        os.write(near, answers)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return detect(far, far, environment, protocol=None, seconds=DEADLINE), queries[0]
    finally:
        thread.join()
        os.close(near)
        os.close(far)


@pytest.mark.parametrize(
    ("answers", "environment", "protocol"),
    [
        (KITTY_OK + NO_SIXEL, {}, "kitty"),
        (KITTY_OK + HAS_SIXEL, {"TERM_PROGRAM": "WezTerm"}, "kitty"),
        (b"\x1b_Gi=31;ENOTSUPPORTED\x1b\\" + NO_SIXEL, {}, None),
        (NO_SIXEL, {}, None),
        (b"\x1b[?4c", {}, None),  # the class of the terminal, no attribute
        (HAS_SIXEL, {}, "sixel"),
        (NO_SIXEL, {"TERM_PROGRAM": "iTerm.app"}, "iterm"),
        (NO_SIXEL, {"LC_TERMINAL": "iTerm2"}, "iterm"),
        (NO_SIXEL, {"LC_TERMINAL": "iTerm2", "TMUX": "/tmp/tmux"}, None),  # which would not pass it on
        (HAS_SIXEL, {"TMUX": "/tmp/tmux"}, "sixel"),
    ],
)
def test_the_protocol_is_the_one_that_the_terminal_names(
    answers: bytes, environment: Mapping[str, str], protocol: str | None
) -> None:
    found, queries = detected(answers, environment)
    assert (found.graphics.protocol if found.graphics else None, found.typed) == (protocol, b"")
    assert (b"\x1b_G" in queries) == ("TMUX" not in environment)


def test_what_is_typed_while_the_terminal_answers_is_kept_and_the_size_of_a_cell_is_read() -> None:
    found, _ = detected(b"he\x1b[6;20;10tl" + KITTY_OK + b"lo\x1b[A" + NO_SIXEL, {})
    assert found == Detected(Graphics("kitty", (10, 20)), b"hello\x1b[A")
    assert [press.data for press in parsed_keys(found.typed)] == ["h", "e", "l", "l", "o", "\x1b[A"]


@pytest.mark.parametrize("protocol", [None, "sixel"])
def test_a_terminal_that_does_not_answer_shows_no_pictures_unless_it_is_known_to(protocol: Protocol | None) -> None:
    near, far = pty.openpty()
    try:
        tty.setcbreak(far)
        os.write(near, b"typed")
        found = detect(far, far, {}, protocol=protocol, seconds=0.1)
    finally:
        os.close(near)
        os.close(far)
    assert found == Detected(Graphics(protocol) if protocol else None, b"typed")


# --- the bytes --------------------------------------------------------------------------------------------------------


def picture(width: int, height: int, form: str = "PNG", *, colour: tuple[int, ...] = (255, 0, 0)) -> bytes:
    out = io.BytesIO()
    Image.new("RGBA" if len(colour) == 4 else "RGB", (width, height), colour).save(out, form)
    return out.getvalue()


def sent_to_kitty(drawing: str) -> tuple[dict[str, str], bytes]:
    """Return the keys of the first sequence and the bytes of all."""
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", drawing)
    assert [keys.rpartition("m=")[2] for keys, _ in pieces] == ["1"] * (len(pieces) - 1) + ["0"]
    assert all(len(data) <= CHUNK for _, data in pieces)
    return dict(pair.split("=") for pair in pieces[0][0].split(",")), base64.b64decode("".join(data for _, data in pieces))


def test_a_png_goes_to_kitty_as_it_is_in_pieces_and_in_the_size_of_the_window() -> None:
    content = png(800, 400, filling=10_000)
    drawing = encoded(content, KITTY, 50, 100)
    assert drawing is not None
    keys, sent = sent_to_kitty(drawing)
    assert sent == content
    assert (keys["a"], keys["f"], keys["q"], keys["c"], keys["r"]) == ("T", "100", "2", "50", "13")
    assert drawing.endswith("\x1b\\\n")


def test_another_format_is_made_a_small_png_for_kitty_and_is_left_to_iterm() -> None:
    jpeg = picture(640, 480, "JPEG")
    drawing = encoded(jpeg, KITTY, 40, 100)
    assert drawing is not None
    with Image.open(io.BytesIO(sent_to_kitty(drawing)[1])) as sent:
        assert (sent.format, sent.size) == ("PNG", (320, 240))
    drawing = encoded(jpeg, ITERM, 40, 100)
    assert drawing is not None
    head, _, data = drawing.removeprefix("\x1b]1337;File=").removesuffix("\x07\n").partition(":")
    assert base64.b64decode(data) == jpeg
    assert head == f"inline=1;size={len(jpeg)};width=40;height=15;preserveAspectRatio=1"


def pixels_of(sixels: str) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return the pixels that a terminal would draw, by column and row, with colours from 0 to 100."""
    body = re.fullmatch(r'\x1bP0;1q"1;1;\d+;\d+(.*)\x1b\\\n', sixels, re.DOTALL)
    assert body is not None
    colours: dict[int, tuple[int, int, int]] = {}
    drawn: dict[tuple[int, int], tuple[int, int, int]] = {}
    column = band = colour = 0
    for token in re.finditer(r"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|([$-])", body[1]):
        if token[1]:
            colours[int(token[1])] = (int(token[2]), int(token[3]), int(token[4]))
        elif token[5]:
            colour = int(token[5])
        elif token[9]:
            column, band = 0, band + (token[9] == "-")
        else:
            bits = ord(token[7] or token[8]) - 63
            end = column + int(token[6] or 1)
            places = ((x, band * 6 + row) for x in range(column, end) for row in range(6) if bits >> row & 1)
            drawn |= dict.fromkeys(places, colours[colour])
            column = end
    return drawn


def test_sixels_are_the_pixels_of_the_picture_and_leave_out_transparent_ones() -> None:
    image = Image.new("RGBA", (40, 15), (255, 0, 0, 255))
    image.paste((0, 0, 255, 255), (10, 5, 30, 12))
    image.paste((0, 255, 0, 0), (0, 0, 3, 2))
    out = io.BytesIO()
    image.save(out, "PNG")
    drawing = encoded(out.getvalue(), SIXEL, 80, 24)
    assert drawing is not None
    wanted = {}
    for x in range(40):
        for y in range(15):
            *colour, alpha = image.getpixel((x, y))  # type: ignore[misc]
            if alpha:
                wanted[x, y] = tuple(part * 100 // 255 for part in colour)
    assert pixels_of(drawing) == wanted


def test_a_picture_keeps_its_proportions_and_is_not_enlarged() -> None:
    assert fit(16, 16, KITTY, 80, 24) == picture_encoding.Box(2, 1, 16, 16)
    assert fit(6400, 100, KITTY, 80, 24) == picture_encoding.Box(80, 1, 640, 10)
    assert fit(100, 6400, KITTY, 80, 24) == picture_encoding.Box(1, 24, 6, 384)
    assert fit(1, 1_000_000, KITTY, 80, 24) == picture_encoding.Box(1, 24, 1, 384)


def bomb(width: int, height: int) -> bytes:
    """A PNG that says to be this large."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize("graphics", [KITTY, ITERM, SIXEL])
def test_what_is_too_large_or_no_picture_is_not_sent_to_the_terminal(graphics: Graphics) -> None:
    assert encoded(bomb(100_000, 100_000), graphics, 80, 24) is None
    assert encoded(b"\x1b[2J no picture", graphics, 80, 24) is None
    assert encoded(png(4, 4) + bytes(picture_encoding.LARGEST_BYTES), graphics, 80, 24) is None


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_damaged_picture_is_not_decoded(form: str) -> None:
    whole = picture(300, 300, form)
    for broken in (whole[: len(whole) * 2 // 3], whole[:60] + b"\xff" * 60 + whole[120:]):
        drawing = encoded(broken, SIXEL, 80, 24)
        assert drawing is None or drawing.startswith("\x1bP")


def test_without_pillow_png_goes_to_kitty_and_nothing_to_sixel(monkeypatch: pytest.MonkeyPatch) -> None:
    content, jpeg = picture(30, 20), picture(30, 20, "JPEG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert encoded(content, KITTY, 80, 24) is not None
    assert encoded(jpeg, ITERM, 80, 24) is not None
    assert encoded(jpeg, KITTY, 80, 24) is None
    assert encoded(content, SIXEL, 80, 24) is None


# --- the files of events ----------------------------------------------------------------------------------------------


def attachment(name: str = "roof.png", size: int = 12_345, width: int = 640) -> Attachment:
    media, height = ("image/png", 480) if width else ("text/plain", 0)
    return Attachment(sha256="a" * 64, media=media, name=name, bytes=size, width=width, height=height)


def replied(text: str) -> ModelReplied:
    return ModelReplied(reply=1, model="m", text=text, calls=(), stop="end", usage=None)


def test_captions_name_kind_size_and_bytes_and_no_escapes() -> None:
    files = (attachment(), attachment("a\x1b[2J\n\u202eb.txt", 12, width=0))
    returned = ToolReturned(call=CallRef(of=3, index=0), outcome="returned", output="", attachments=files)
    first, second = (file.caption for file in files_of(returned))
    assert first == "[picture roof.png 640x480 12 kB]"
    assert second.startswith("[file a")
    assert second.endswith(" 12 bytes]")
    assert not {"\x1b", "\n", "\u202e"} & set(second)


def test_an_answer_shows_its_data_pictures_and_none_of_an_address() -> None:
    data = base64.b64encode(png(3, 2)).decode()
    text = f"![one](data:image/png;base64,{data}) ![two](https://example.org/x.png) [no](data:image/png;base64,{data})"
    (file,) = files_of(replied(text))
    assert (file.caption, file.content) == (f"[picture one 3x2 {len(png(3, 2))} bytes]", png(3, 2))
    unfinished, no_base64, svg = (f"png;base64,{data}", "png;base64,%%%)", "svg+xml;base64,PHN2Zz4=)")
    for broken in (unfinished, no_base64, svg):
        assert files_of(replied(f"![x](data:image/{broken}")) == []
    many = f"![x](data:image/png;base64,{data}) " * (DRAWN + 2)
    assert len(files_of(replied(many))) == DRAWN


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_the_captions_of_data_pictures_replace_them_however_the_text_is_cut(piece: int) -> None:
    data = base64.b64encode(png(3, 2)).decode()
    caption = f"[picture one! 3x2 {len(png(3, 2))} bytes]"
    broken = "![x](data:image/png;base64,%%%) ![y](data:image/png;base64,AA![z](https://e.org/x.png) a! b![c\n"
    text = (
        f"Hi!\n\n![one!](data:image/png;base64,{data}) {broken}![one!](data:image/png;base64,{data}) ![two](data:image/png;b"
    )
    stream = CaptionedStream()
    shown = "".join(stream.add(text[start : start + piece]) for start in range(0, len(text), piece))
    assert shown == f"Hi!\n\n{caption} {broken}{caption} "
    assert (stream.rest(), stream.rest()) == ("![two](data:image/png;b", "")
    assert captioned(text) == shown + "![two](data:image/png;b"


@pytest.mark.parametrize(("answer", "drawn"), [(HAS_SIXEL, 1), (NO_SIXEL, 0)])
async def test_an_answer_shows_a_caption_in_place_of_its_picture_and_draws_it_below(
    tmp_path: Path, answer: bytes, drawn: int
) -> None:
    data = base64.b64encode(picture(64, 32)).decode()
    text = f"A roof: ![roof](data:image/png;base64,{data}) and words."
    script: list[dict[str, Any]] = [{"text": text, "delay_ms": 5}, {"text": "Welcome."}]
    async with gateway(tmp_path / "home", script=script) as g, Terminal(100, 24, answer=answer) as terminal:
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("Ctrl-D leaves.")
        terminal.types("Draw" + ENTER)
        await terminal.sees("bytes] and words.\n")
        terminal.types("Thanks" + ENTER)
        await terminal.sees("Welcome.\n")
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        assert terminal.shown.count("[picture roof 64x32 ") == 1
        assert terminal.bytes.count(b"\x1bP0;1q") == drawn
        assert data[:20].encode() not in terminal.bytes


async def test_what_cannot_be_fetched_or_shown_has_its_caption() -> None:
    async def fails(_: str, __: int) -> bytes:
        raise DownloadFailed("gone")

    async def works(_: str, __: int) -> bytes:
        return png(30, 20)

    files = [ShownFile(attachment())] * (DRAWN + 1)
    size = (80, 24)
    assert [drawing for _, drawing in await Pictures(KITTY, lambda: size).drawings(files, fails)] == [None] * len(files)
    assert [drawing for _, drawing in await Pictures(None, lambda: size).drawings(files, works)] == [None] * len(files)
    shown = await Pictures(KITTY, lambda: size).drawings([*files, ShownFile(attachment(width=0))], works)
    assert [drawing is not None for _, drawing in shown] == [True] * DRAWN + [False, False]


# --- at a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "options", "begins"),
    [
        (HAS_SIXEL, (), b"\x1bP0;1q"),
        (KITTY_OK + NO_SIXEL, (), b"\x1b_Ga=T,f=100"),
        (NO_SIXEL, ("--pictures", "iterm"), b"\x1b]1337;File=inline=1"),
        (NO_SIXEL, (), b""),
        (HAS_SIXEL, ("--pictures", "off"), b""),
    ],
)
async def test_an_attached_picture_is_shown_where_the_terminal_can_and_named_elsewhere(
    tmp_path: Path, answer: bytes, options: tuple[str, ...], begins: bytes
) -> None:
    (tmp_path / "roof.png").write_bytes(picture(64, 32))
    async with gateway(tmp_path / "home", script=[{"text": "A roof."}]) as g, Terminal(100, 24, answer=answer) as terminal:
        process = await terminal.chat(g.url, *options, environment=environment(tmp_path))
        await terminal.sees("Ctrl-D leaves.")
        terminal.types(f"What is @{tmp_path}/roof.png" + ENTER)
        await terminal.sees("A roof.\n")
        await terminal.sees("› ")
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        captions = terminal.shown.count(f"[picture roof.png 64x32 {len(picture(64, 32))} bytes]")
        assert (captions, begins in terminal.bytes) == ((0, True) if begins else (1, True))
        assert bool(begins) == any(mark in terminal.bytes for mark in (b"\x1bP", b"\x1b_Ga=T", b"\x1b]1337"))
        assert (b"\x1b[c" in terminal.bytes) == ("off" not in options)
