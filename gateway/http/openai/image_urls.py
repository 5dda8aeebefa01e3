"""Pictures that a client sends as `data:` addresses: their bytes, told from themselves and kept by content.

Other addresses are refused. What stands in a request is often a stranger's text, and a gateway that fetches what it is told
to would look around in its own network for whoever wrote it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from hashlib import sha256

from gateway.http.openai.api_errors import bad_request
from sessions.events.file_types import detect_picture
from sessions.events.messages import Attachment

_DATA, _BASE64 = "data:", ";base64,"


class ImageUrls:
    """The pictures of one request. `content` holds the bytes of each by its SHA-256."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def add(self, url: str, place: str) -> Attachment:
        """The picture at an address; `place` names it in refusals. Raises Refused."""
        content = _bytes_of(url, place)
        picture = detect_picture(content)
        if picture is None:
            raise bad_request(f"{place}: this is no whole PNG, JPEG, GIF or WebP.", place, "invalid_image")
        digest = sha256(content).hexdigest()
        self.content[digest] = content
        return Attachment(sha256=digest, media=picture.media, bytes=len(content), width=picture.width, height=picture.height)

    @property
    def base64(self) -> dict[str, bytes]:
        """The base64 of each by its SHA-256."""
        return {digest: b64encode(content) for digest, content in self.content.items()}


def _bytes_of(url: str, place: str) -> bytes:
    if url[: len(_DATA)].lower() != _DATA:
        raise bad_request(
            f"{place}: pictures are not fetched from elsewhere; send the picture itself as a base64 `data:` address.",
            place,
            "invalid_image_url",
        )
    _, mark, encoded = url.partition(_BASE64)
    try:
        return b64decode(encoded, validate=True) if mark else b""
    except (binascii.Error, ValueError):
        raise bad_request(f"{place}: the address is not valid base64.", place, "invalid_image_url") from None
