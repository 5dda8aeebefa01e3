"""What a file is, told from its bytes alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.file_types import PLAIN, UNKNOWN, Picture, detect_media_type, detect_picture, is_text
from tests.pictures import gif, jpeg, png, webp

SIZES = st.integers(1, 16_000)


@given(SIZES, SIZES)
def test_the_four_kinds_are_recognised_with_their_size(width: int, height: int) -> None:
    small = png(1, 1)
    header = small[:16] + width.to_bytes(4, "big") + height.to_bytes(4, "big") + small[24:]
    assert detect_picture(header) == Picture("image/png", width, height)
    assert detect_picture(gif(width, height)) == Picture("image/gif", width, height)
    assert detect_picture(jpeg(width, height)) == Picture("image/jpeg", width, height)
    for kind in (b"VP8 ", b"VP8L", b"VP8X"):
        assert detect_picture(webp(kind, width, height)) == Picture("image/webp", width, height)


def test_a_jpeg_is_measured_after_a_cameras_metadata_and_not_inside_it() -> None:
    assert detect_picture(jpeg(4000, 3000, notes=9, progressive=True)) == Picture("image/jpeg", 4000, 3000)


@pytest.mark.parametrize("filling", [b"\xff\xe1\0\2", b"\xff\xd0", b"\xff"])
def test_the_frame_of_a_jpeg_is_searched_after_a_bounded_number_of_markers(filling: bytes) -> None:
    whole = jpeg(3, 4)
    assert detect_picture(whole[:2] + filling * 1000 + whole[2:]) == Picture("image/jpeg", 3, 4)
    assert detect_picture(whole[:2] + filling * 10_000 + whole[2:]) is None, "an upload of them would take seconds"


@pytest.mark.parametrize("whole", [png(3, 4), gif(3, 4), jpeg(3, 4), *(webp(k, 3, 4) for k in (b"VP8 ", b"VP8L", b"VP8X"))])
def test_a_truncated_picture_has_no_wrong_size(whole: bytes) -> None:
    for length in range(len(whole)):
        found = detect_picture(whole[:length])
        assert found is None or (found.width, found.height) == (3, 4)
    assert detect_picture(whole[:10]) is None


@given(st.sampled_from([png(), gif(), jpeg(), webp(b"VP8 "), webp(b"VP8L"), webp(b"VP8X")]), st.data())
def test_arbitrary_bytes_raise_no_error(whole: bytes, data: st.DataObject) -> None:
    broken = bytearray(whole)
    for _ in range(4):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    found = detect_picture(bytes(broken))
    assert found is None or (found.width > 0 and found.height > 0)
    assert detect_media_type(bytes(broken), "image/png") in (PLAIN, UNKNOWN)


@pytest.mark.parametrize(
    ("content", "claimed", "media"),
    [
        (b"# Notes\n", "text/markdown; charset=utf-8", "text/markdown"),
        (b'{"a": 1}', "application/json", PLAIN),
        (b"<svg/>", "image/svg+xml", PLAIN),
        ("日本語\r\n\t".encode(), "", PLAIN),
        (b"", "", PLAIN),
        (b"\xff\xfe\x00", "text/plain", UNKNOWN),
        (b"%PDF-1.7\n\xe2\xe3", "Application/PDF", "application/pdf"),
        (b"%PDF-1.7\n\xe2\xe3", "image/png", UNKNOWN),
        (b"\x00\x01", "no media type\r\nSet-Cookie: a=b", UNKNOWN),
    ],
)
def test_the_stated_type_counts_only_if_the_content_does_not_contradict_it(content: bytes, claimed: str, media: str) -> None:
    assert detect_media_type(content, claimed) == media


def test_a_character_may_be_split_between_two_blocks() -> None:
    assert is_text(b"a" * (1024 * 1024 - 1) + "é".encode() + b"b")
    assert not is_text(b"a" * (1024 * 1024 - 1) + "é".encode()[:1])
