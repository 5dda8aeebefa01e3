"""What Telegram's Bot API accepts: the parameters of its methods, entities, keyboards and files, and its refusals.

Written from the Bot API's documentation; the words of the refusals are as people quote them in their reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from aiohttp.web_request import FileField

Json = dict[str, Any]

TEXT_UNITS, CAPTION_UNITS, ENTITIES = 4096, 1024, 100
CALLBACK_BYTES = 64
PHOTO_BYTES, UPLOAD_BYTES, DOWNLOAD_BYTES = 10 * 1024**2, 50 * 1024**2, 20 * 1024**2

SPLITTABLE = {"bold", "italic", "underline", "strikethrough", "spoiler"}
CODE = {"pre", "code"}
QUOTES = {"blockquote", "expandable_blockquote"}
ENTITY_TYPES = SPLITTABLE | CODE | QUOTES | {
    "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "text_link", "text_mention",
    "custom_emoji",
}  # fmt: skip

REACTIONS = {"👍", "👎", "❤", "🔥", "🎉", "😁", "🤔", "👌", "🤝", "👀", "💯", "🙏", "🤷"}

ACTIONS = {
    "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
    "choose_sticker", "find_location", "record_video_note", "upload_video_note",
}  # fmt: skip


class Refused(Exception):
    """A refusal: the error code, the reason, and parameters such as `retry_after`."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def response(self) -> web.Response:
        """Return it as an HTTP response."""
        body: Json = {"ok": False, "error_code": self.code, "description": self.description}
        if self.parameters:
            body["parameters"] = self.parameters
        return web.json_response(body, status=self.code)


def bad(description: str, **parameters: Any) -> Refused:
    return Refused(400, f"Bad Request: {description}", **parameters)


def units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class Parameters:
    """The parameters of a request: from the query, a form, a form with files, or JSON."""

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, FileField]) -> None:
        self.values = values
        self.files = files

    @classmethod
    async def of(cls, request: web.Request) -> Parameters:
        """Read a request."""
        values: Json = dict(request.query)
        files: dict[str, FileField] = {}
        if request.content_type == "application/json":
            try:
                body = await request.json()
            except ValueError:
                raise bad("can't parse JSON object") from None
            if not isinstance(body, dict):
                raise bad("can't parse JSON object")
            values |= body
        elif request.method == "POST":
            for name, value in (await request.post()).items():
                if isinstance(value, FileField):
                    files[name] = value
                else:
                    values[name] = value
        return cls(values, files)

    def text(self, name: str) -> str:
        value = self.values.get(name, "")
        return value if isinstance(value, str) else json.dumps(value)

    def number(self, name: str, default: int = 0) -> int:
        try:
            return int(self.values.get(name) or default)
        except (ValueError, TypeError):
            raise bad(f'parameter "{name}" must be an integer') from None

    def flag(self, name: str) -> bool:
        return str(self.values.get(name, "")).lower() in ("true", "1")

    def decoded(self, name: str, default: Any = None) -> Any:
        """Return a parameter that is JSON, in a form as text."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return default if value is None else value
        try:
            return json.loads(value) if value else default
        except ValueError:
            raise bad(f"can't parse parameter \"{name}\": Can't parse JSON") from None


def checked_text(given: Parameters, name: str = "text", most: int = TEXT_UNITS) -> tuple[str, list[Json]]:
    """Return a text and its entities, or refuse them."""
    if given.text("parse_mode"):
        raise bad("unsupported parse_mode")  # nothing of ours may use it
    text = given.text(name)
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        raise bad("strings must be encoded in UTF-8")
    if units(text) > most:
        raise bad("message is too long" if name == "text" else "message caption is too long")
    entities = given.decoded("entities" if name == "text" else "caption_entities", [])
    if not isinstance(entities, list):
        raise bad("can't parse entities: expected an Array of MessageEntity")
    entities = [_checked_entity(text, each) for each in entities][:ENTITIES]
    _check_nesting(entities)
    text = text.rstrip()
    if any(2 * (each["offset"] + each["length"]) > len(text.encode("utf-16-le")) for each in entities):
        raise AssertionError(f"An entity marks the white space at the end, which the service removes: {text[-40:]!r}")
    if not any(each["offset"] == 0 for each in entities):  # white space is removed up to the first entity
        if entities and text != text.lstrip():
            raise AssertionError(f"The text begins with white space, which moves its entities: {text[:40]!r}")
        text = text.lstrip()
    return text, entities


def _checked_entity(text: str, entity: Any) -> Json:
    if not isinstance(entity, dict):
        raise bad("can't parse MessageEntity: expected an Object")
    kind, offset, length = entity.get("type"), entity.get("offset"), entity.get("length")
    if kind not in ENTITY_TYPES:
        raise bad(f"can't parse entities: unsupported entity type {kind!r}")
    if not isinstance(offset, int) or not isinstance(length, int):
        raise bad("can't parse entities: field must be of type Number")
    encoded = text.encode("utf-16-le", "surrogatepass")
    if offset < 0 or length <= 0 or 2 * (offset + length) > len(encoded):
        raise bad("ENTITY_BOUNDS_INVALID")
    for cut in (offset, offset + length):
        if encoded[2 * cut + 1 : 2 * cut + 2] and 0xDC <= encoded[2 * cut + 1] <= 0xDF:
            raise bad(
                f"can't parse entities: entity beginning at UTF-16 offset {offset} ends in a middle of a UTF-16 symbol"
            )
    if kind == "text_link" and not str(entity.get("url", "")).startswith(("http://", "https://", "tg://")):
        raise bad("can't parse entities: invalid URL")
    return entity


def _check_nesting(entities: list[Json]) -> None:
    """Refuse entities that overlap, are within code, or are quotes in quotes; the real service would change them."""
    for at, outer in enumerate(entities):
        for inner in entities[at + 1 :]:
            a, b = (
                (outer, inner)
                if (outer["offset"], -outer["length"]) <= (inner["offset"], -inner["length"])
                else (inner, outer)
            )
            a_end, b_end = a["offset"] + a["length"], b["offset"] + b["length"]
            if b["offset"] >= a_end:
                continue
            both = {a["type"], b["type"]}
            if b_end > a_end:
                raise bad(f"can't parse entities: {a['type']} and {b['type']} overlap")
            if a["type"] == b["type"] or (both & CODE and not both & QUOTES) or a["type"] in CODE or both <= QUOTES:
                raise bad(f"can't parse entities: {b['type']} within {a['type']}")


def checked_keyboard(given: Parameters) -> Json | None:
    """Return the inline keyboard of a request, or refuse it."""
    markup = given.decoded("reply_markup")
    if markup is None:
        return None
    if not isinstance(markup, dict) or not isinstance(rows := markup.get("inline_keyboard"), list):
        raise bad("object expected as reply markup")
    for button in (button for row in rows for button in row):
        if not str(button.get("text", "")).strip():
            raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
        data = button.get("callback_data")
        if data is None and "url" not in button:
            raise bad("BUTTON_TYPE_INVALID")
        if data is not None and not 1 <= len(str(data).encode()) <= CALLBACK_BYTES:
            raise bad("BUTTON_DATA_INVALID")
    return markup if rows else None


def picture_size(content: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, JPEG or WebP; None for anything else. Only PNG's are read."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) >= 24:
        return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if content.startswith(b"\xff\xd8\xff") or (content[:4] == b"RIFF" and content[8:12] == b"WEBP"):
        return 90, 90
    return None
