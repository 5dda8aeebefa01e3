"""Slack's checks of a message's blocks, and the text that people see of them."""

from __future__ import annotations

import json
from typing import Any

MOST_BLOCKS = 50
MOST_BLOCK_JSON = 13_200
"""Characters of the blocks' JSON beyond which Slack was observed to refuse a message."""

Json = dict[str, Any]


class ApiError(Exception):
    """An answer with `"ok": false`."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.body = {"ok": False, "error": error, **more}


_INLINE = {"text", "link", "user", "channel", "emoji", "broadcast", "usergroup", "date", "color"}
_STYLES = {"bold", "italic", "strike", "code", "highlight", "client_highlight", "unlink", "underline"}


def check_blocks(blocks: Any) -> None:
    """Raise ApiError for blocks that Slack refuses."""
    if not isinstance(blocks, list) or len(blocks) > MOST_BLOCKS:
        raise ApiError("invalid_blocks")
    if len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > MOST_BLOCK_JSON:
        raise ApiError("msg_blocks_too_long")
    actions: set[str] = set()
    for number, block in enumerate(blocks):
        if why := _wrong(block, actions):
            raise ApiError("invalid_blocks", errors=[f"{why} [json-pointer:/blocks/{number}]"])


def _wrong(block: Json, actions: set[str]) -> str:  # noqa: PLR0911
    """Return what is wrong with a block, or ""."""
    match block.get("type"):
        case "divider":
            return ""
        case "section" | "header":
            limit = 3000 if block["type"] == "section" else 150
            return "" if 0 < len(block.get("text", {}).get("text", "")) <= limit else "text length"
        case "actions":
            elements = block.get("elements", [])
            if not 1 <= len(elements) <= 25:
                return "number of elements"
            return next((why for element in elements if (why := _wrong_button(element, actions))), "")
        case "rich_text":
            if not block.get("elements"):
                return "no elements"
            return next((why for element in block["elements"] if (why := _wrong_text(element))), "")
    return f"unsupported type: {block.get('type')}"


def _wrong_button(element: Json, actions: set[str]) -> str:
    text = element.get("text", {})
    if element.get("type") != "button" or text.get("type") != "plain_text" or not 0 < len(text.get("text", "")) <= 75:
        return "text of a button"
    if not 0 < len(element.get("action_id", "")) <= 255 or element["action_id"] in actions:
        return "action_id"
    actions.add(element["action_id"])
    return "" if len(element.get("value", "")) <= 2000 else "value"


def _wrong_text(element: Json) -> str:  # noqa: PLR0911
    """Return what is wrong with a part of rich text, or ""."""
    if element.get("type") == "rich_text_list":
        if element.get("style") not in ("bullet", "ordered") or not element.get("elements"):
            return "list"
        if any(each.get("type") != "rich_text_section" for each in element["elements"]):
            return "element of a list"
        return next((why for each in element["elements"] if (why := _wrong_text(each))), "")
    if element.get("type") not in ("rich_text_section", "rich_text_preformatted", "rich_text_quote"):
        return f"type {element.get('type')}"
    for part in element.get("elements", []):
        if part.get("type") not in _INLINE or not set(part.get("style", {})) <= _STYLES:
            return f"part {part}"
        if part["type"] == "text" and not part.get("text"):
            return "must be more than 0 characters"
        if part["type"] == "link" and not str(part.get("url", "")).partition(":")[2]:
            return "url"
        if element["type"] == "rich_text_preformatted" and part["type"] not in ("text", "link"):
            return "part of preformatted text"
    return "" if element.get("elements") else "no parts"


def text_of(message: Json) -> str:
    """Return the text of a post as people see it: that of its blocks, if there are any."""
    blocks = [_block_text(block) for block in message.get("blocks", [])]
    return "\n".join(text for text in blocks if text) or _unescaped(message.get("text", ""))


def _block_text(block: Json) -> str:
    if block["type"] == "rich_text":
        return "\n".join(_element_text(element) for element in block["elements"])
    return str(block["text"]["text"]) if "text" in block else ""


def _element_text(element: Json) -> str:
    if element["type"] == "rich_text_list":
        return "\n".join(_element_text(each) for each in element["elements"])
    return "".join(str(part.get("text") or part.get("url", "")) for part in element["elements"])


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
