"""Requests about facts: how much one may show, the form of the answer, and what of an answer has that form. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from plugins.api.chat import ResponseFormat
from plugins.api.facts.fact_values import TYPES, Draft, InvalidFact, draft
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
"""Openings of a list or an object in an answer that are tried as the beginning of the JSON."""

MOST_TAGS = 8
"""Tags of one fact that are taken."""


ANSWER_SHARE, WINDOW_SHARE, FRAME = 4, 0.9, 120
"""At most a quarter of a window is kept free for the answer; a tenth stays unused, since tokens are only estimated; and so
many tokens stand around what is shown."""


def room(window: int | None, system: str, answer: int) -> int | None:
    """Return the tokens that may be shown behind the instructions, with an answer of so many to come; None where the window
    is unknown."""
    if window is None:
        return None
    return max(1, int(window * WINDOW_SHARE) - min(answer, window // ANSWER_SHARE) - estimate(system) - FRAME)


def form(*, numbered: bool = False) -> ResponseFormat:
    """The form that an answer is held to where the service can: facts, also with the numbers of those that each was made
    from and of those that it supersedes. Without bounds on numbers and lengths, which not every service knows; those are
    looked at here."""
    fields = {**_FACT, **({"from": _NUMBERS, "supersedes": _NUMBERS} if numbered else {})}
    row = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {"facts": {"type": "array", "items": row}},
        "required": ["facts"],
        "additionalProperties": False,
    }
    return ResponseFormat(name="facts", schema=schema, strict=True)


def rows_of(answer: str) -> list[object] | None:
    """The list in an answer, alone or under a name, also where a model wrote something around it; None if there is none."""
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


def draft_of(row: object) -> Draft:
    """The fact in a row of the list; what is missing beside its content is as usual. Raises InvalidFact."""
    if not isinstance(row, Mapping):
        raise InvalidFact("A fact is an object.")
    content, kind, tags, importance = (row.get(name) for name in ("content", "type", "tags", "importance"))
    if not isinstance(content, str):
        raise InvalidFact("A fact has words.")
    return draft(
        harmless(content),
        kind if isinstance(kind, str) and kind in TYPES else "fact",
        [tag for tag in tags if isinstance(tag, str) and ":" not in tag][:MOST_TAGS] if isinstance(tags, list) else (),
        importance if isinstance(importance, int | float) and not isinstance(importance, bool) else 0.5,
    )


def _within(answer: str) -> Iterator[str]:
    """What may be JSON with something written around it: from one of the first openings to the last closing."""
    end = max(answer.rfind("]"), answer.rfind("}")) + 1
    for opening in islice(re.finditer(r"[\[{]", answer[:end]), TRIES):
        yield answer[opening.start() : end]
