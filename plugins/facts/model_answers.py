"""Requests about facts: the prompt budget, the response format, and parsing of the answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from plugins.api.chat import ResponseFormat
from plugins.api.fact_values import TYPES, FactDraft, InvalidFact, draft_fact
from plugins.support.fencing import harmless, unwrapped
from sessions.events.tokens import estimate

_FACT: dict[str, Any] = {
    "content": {"type": "string"},
    "type": {"type": "string", "enum": list(TYPES)},
    "importance": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string"}},
}
_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}

TRIES = 8
"""Maximum opening brackets of an answer that are tried as the start of the JSON."""

MOST_TAGS = 8
"""Maximum tags of a fact."""


ANSWER_SHARE, WINDOW_SHARE, FRAME = 4, 0.9, 120
"""At most 1/ANSWER_SHARE of a window is kept free for the answer. Only WINDOW_SHARE of it is used, because tokens are only
estimated. FRAME is the number of tokens around what is shown."""


def prompt_budget(window: int | None, system: str, answer: int) -> int | None:
    """Return the tokens available for the prompt besides the system prompt and the answer; None if the window is unknown."""
    if window is None:
        return None
    return max(1, int(window * WINDOW_SHARE) - min(answer, window // ANSWER_SHARE) - estimate(system) - FRAME)


def response_format(*, numbered: bool = False) -> ResponseFormat:
    """Return the response format: a list of facts, optionally with the numbers of their sources and of superseded facts.

    Bounds of numbers and lengths are checked here, since not every service supports them in a schema.
    """
    fields = {**_FACT, **({"from": _NUMBERS, "supersedes": _NUMBERS} if numbered else {})}
    row = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {"facts": {"type": "array", "items": row}},
        "required": ["facts"],
        "additionalProperties": False,
    }
    return ResponseFormat(name="facts", schema=schema, strict=True)


def parse_rows(answer: str) -> list[object] | None:
    """Return the list in an answer, also below a key or surrounded by text; None if there is none."""
    for text in (unwrapped(answer), *_within(answer)):
        try:
            value = msgspec.json.decode(text.encode("utf-8", "replace"))
        except (msgspec.MsgspecError, RecursionError):
            continue
        if isinstance(value, dict):
            value = value.get("facts", value.get("entries"))
        if isinstance(value, list):
            return value
    return None


def parse_draft(row: object) -> FactDraft:
    """Convert a row of the list to a draft, with defaults for everything but the content.

    Raises:
        InvalidFact: The row is not a valid fact.
    """
    if not isinstance(row, Mapping):
        raise InvalidFact("A fact must be an object.")
    content, kind, tags, importance = (row.get(name) for name in ("content", "type", "tags", "importance"))
    if not isinstance(content, str):
        raise InvalidFact("A fact must have content.")
    return draft_fact(
        harmless(content),
        kind if isinstance(kind, str) and kind in TYPES else "fact",
        [tag for tag in tags if isinstance(tag, str) and ":" not in tag][:MOST_TAGS] if isinstance(tags, list) else (),
        importance if isinstance(importance, int | float) and not isinstance(importance, bool) else 0.5,
    )


def _within(answer: str) -> Iterator[str]:
    """Yield the substrings that may be JSON: from one of the first opening brackets to the last closing one."""
    end = max(answer.rfind("]"), answer.rfind("}")) + 1
    for opening in islice(re.finditer(r"[\[{]", answer[:end]), TRIES):
        yield answer[opening.start() : end]
