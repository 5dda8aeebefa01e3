"""Pictures in `data:` URLs: their bytes, identified by their content and stored by hash.

Other URLs are refused. A request often contains third-party text, and a gateway that fetches any URL would explore its own
network for whoever wrote it.
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
        """Return the picture of a URL; `place` names it in errors.

        Raises:
            ApiError: The URL is not a `data:` URL with a picture of a known format.
        """
        content = _bytes_of(url, place)
        picture = detect_picture(content)
        if picture is None:
            raise bad_request(f"{place}: this is not a complete PNG, JPEG, GIF or WebP.", place, "invalid_image")
        digest = sha256(content).hexdigest()
        self.content[digest] = content
        return Attachment(sha256=digest, media=picture.media, bytes=len(content), width=picture.width, height=picture.height)

    @property
    def base64(self) -> dict[str, bytes]:
        """The base64 of each picture by its SHA-256."""
        return {digest: b64encode(content) for digest, content in self.content.items()}


def _bytes_of(url: str, place: str) -> bytes:
    if url[: len(_DATA)].lower() != _DATA:
        raise bad_request(
            f"{place}: pictures are not fetched; send the picture itself as a base64 `data:` URL.",
            place,
            "invalid_image_url",
        )
    _, mark, encoded = url.partition(_BASE64)
    try:
        return b64decode(encoded, validate=True) if mark else b""
    except (binascii.Error, ValueError):
        raise bad_request(f"{place}: the URL is not valid base64.", place, "invalid_image_url") from None
