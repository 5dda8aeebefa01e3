"""The checks that Discord's API makes of a message, for the fake in `discord_server`: with its statuses and codes."""

from __future__ import annotations

from typing import Any

MAX_TEXT = 2000
MAX_FILE = 10 * 1024 * 1024


class ApiError(Exception):
    """A request that is refused with a status and a JSON body."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message, **more}


def check_message(payload: dict[str, Any], files: list[tuple[str, bytes]]) -> None:
    """Raise ApiError for a message that Discord would refuse."""
    content = payload.get("content") or ""
    if not isinstance(content, str):
        raise _invalid("content", "BASE_TYPE_BAD_TYPE", "Could not interpret as string.")
    if len(content) > MAX_TEXT:
        raise _invalid("content", "BASE_TYPE_MAX_LENGTH", f"Must be {MAX_TEXT} or fewer in length.")
    if not content.strip() and not files and not payload.get("sticker_ids") and not payload.get("components"):
        raise ApiError(400, 50006, "Cannot send an empty message")
    nonce = payload.get("nonce")
    if nonce is not None and not (isinstance(nonce, int) or (isinstance(nonce, str) and len(nonce) <= 25)):
        raise _invalid("nonce", "NONCE_TYPE_TOO_LONG", "Nonce must be 25 or fewer in length.")
    if payload.get("enforce_nonce") and nonce is None:
        raise _invalid("nonce", "BASE_TYPE_REQUIRED", "This field is required")
    if len(files) > 10:
        raise _invalid("attachments", "BASE_TYPE_MAX_LENGTH", "Must be 10 or fewer in length.")
    if sum(len(body) for _, body in files) > MAX_FILE:
        raise ApiError(413, 40005, "Request entity too large")
    declared = [str(each.get("id")) for each in payload.get("attachments") or []]
    if declared and sorted(declared) != sorted(str(number) for number in range(len(files))):
        raise _invalid("attachments", "BASE_TYPE_CHOICES", f"The files do not match the attachments {declared}.")
    mentions = payload.get("allowed_mentions")
    if mentions is not None and not set(mentions.get("parse", ())) <= {"users", "roles", "everyone"}:
        raise _invalid("allowed_mentions", "BASE_TYPE_CHOICES", "Value must be one of ('roles', 'users', 'everyone').")
    check_components(payload.get("components") or [])


def check_components(rows: list[dict[str, Any]]) -> None:
    """Raise ApiError for components that are not rows of buttons as Discord accepts them."""
    if len(rows) > 5:
        raise _invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.")
    seen: set[str] = set()
    for row in rows:
        buttons = row.get("components") or []
        if row.get("type") != 1 or not 1 <= len(buttons) <= 5:
            raise _invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.")
        for button in buttons:
            custom_id = button.get("custom_id", "")
            if button.get("type") != 2 or button.get("style") not in (1, 2, 3, 4) or not 1 <= len(custom_id) <= 100:
                raise _invalid("components", "COMPONENT_TYPE_INVALID", "The specified component is invalid.")
            if not 1 <= len(button.get("label", "")) <= 80:
                raise _invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 80 in length.")
            if custom_id in seen:
                raise _invalid("components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
            seen.add(custom_id)


def _invalid(field: str, code: str, message: str) -> ApiError:
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return ApiError(400, 50035, "Invalid Form Body", errors=errors)
