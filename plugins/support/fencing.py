"""Quoting a conversation as data in a prompt: text between markers that do not occur in it, split into pieces that fit.

Nothing in it can end its fence, imitate another speaker, or be read as a model's chat template. Memory flush and summary
use the same text. Pure functions.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec

from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.events.tokens import estimate

MOST_PIECES = 8
"""The maximum number of pieces; each is a request."""

MARK_BYTES = 4
"""The length of a marker in bytes; it has twice as many hexadecimal digits."""

_STAGES: tuple[tuple[int, int], ...] = ((2_000, 10**9), (600, 6_000), (200, 1_500), (80, 300))
"""Limits in characters for tool calls and results, and for other texts. The first pair that fits is used."""

_FRAME = 16
"""Tokens of an entry's heading and marker."""

# How the chat templates of known models begin and end a message; a space inserted into them makes them plain text.
_TEMPLATE = re.compile(
    r"<(?=[|｜])|(?<=[|｜])>|\[(?=/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])|<(?=<SYS>>|</SYS>>)"
    r"|<(?=/?(?:s|bos|eos|think|tool_call|tool_response|start_of_turn|end_of_turn)>)"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


class FencedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a conversation. `machine`: a tool call or result, which may be shortened to its head and tail."""

    who: str
    text: str
    machine: bool = False


def entries(messages: Sequence[Message], summary: str = "") -> list[FencedEntry]:
    """Return the messages as entries, after the summary of earlier messages if there is one."""
    earlier = [FencedEntry(who="summary of what came before", text=harmless(summary))] if summary.strip() else []
    return [*earlier, *(entry for message in messages for entry in _entries_of(message))]


def divided(record: Sequence[FencedEntry], room: int) -> list[list[FencedEntry]]:
    """Split a conversation into at most `MOST_PIECES` pieces of at most `room` estimated tokens.

    If it is too long, texts are shortened, those of tools first. Finally only the first and the newest pieces are kept.
    """
    pieces: list[list[FencedEntry]] = []
    for machine, other in _STAGES:
        shown = [_cut(entry, machine if entry.machine else other) for entry in record]
        pieces = list(_filled(shown, room))
        if len(pieces) <= MOST_PIECES:
            return pieces
    return [pieces[0], *pieces[1 - MOST_PIECES :]]


def fenced(record: Sequence[FencedEntry]) -> str:
    """Return the conversation between markers that do not occur in it."""
    mark = mark_for("\n".join(entry.text for entry in record))
    lines = [part for entry in record for part in (f"[{mark}] {entry.who}:", entry.text)]
    return "\n".join([f"[{mark}] the record begins", *lines, f"[{mark}] the record ends"])


def quoted(text: str, name: str) -> str:
    """Return a single text between markers, under a name."""
    text = harmless(text)
    mark = mark_for(text)
    return f"[{mark}] {name}:\n{text}\n[{mark}] end"


def mark_for(text: str) -> str:
    """Return hexadecimal digits that do not occur in the text; always the same for the same text."""
    encoded = text.encode("utf-8", "replace")
    for salt in count():
        mark = hashlib.blake2b(encoded, digest_size=MARK_BYTES, salt=salt.to_bytes(8, "big")).hexdigest()
        if mark not in text:
            return mark
    raise AssertionError


def harmless(text: str) -> str:
    """Return the text without control characters and chat template markers."""
    return _CONTROL.sub("\ufffd", _TEMPLATE.sub(_spaced, text.replace("\r\n", "\n")))


def unwrapped(answer: str) -> str:
    """Return a model's reply without surrounding white space and without a Markdown fence around the whole."""
    answer = answer.strip()
    fence = re.fullmatch(r"```\w*\n(.*?)\n?```", answer, re.DOTALL)
    return fence[1].strip() if fence else answer


def _spaced(found: re.Match[str]) -> str:
    return f" {found[0]}" if found[0] == ">" else f"{found[0]} "


def _entries_of(message: Message) -> Iterator[FencedEntry]:
    match message:
        case UserMessage():
            files = "".join(f"\n(attached: {each.name or each.media})" for each in message.attachments)
            yield FencedEntry(who="the person", text=harmless(message.text + files))
        case AssistantMessage():
            if message.text.strip() or not message.calls:
                yield FencedEntry(who="the assistant", text=harmless(message.text))
            for call in message.calls:
                yield FencedEntry(
                    who=f"the assistant calls {_tool_word(call.tool)}", text=harmless(call.arguments), machine=True
                )
        case ToolMessage():
            how = "failed with" if message.failed else "returned"
            yield FencedEntry(who=f"{_tool_word(message.tool)} {how}", text=harmless(message.text), machine=True)


def _tool_word(tool: str) -> str:
    """Return a tool's name as one word for a heading: models invent names."""
    return re.sub(r"[^\w.-]", "_", tool)[:64] or "a tool"


def _cut(entry: FencedEntry, limit: int) -> FencedEntry:
    """Shorten an entry to its head and tail, about `limit` characters."""
    text = entry.text
    if len(text) <= limit:
        return entry
    head, tail = limit - limit // 3, limit // 3
    omitted = f"[… {len(text) - head - tail:,} characters are not shown …]"
    return msgspec.structs.replace(entry, text=f"{text[:head]}\n{omitted}\n{text[-tail:]}")


def _filled(record: Sequence[FencedEntry], room: int) -> Iterator[list[FencedEntry]]:
    """Yield pieces that are as full as possible. Entries that are too long are continued in the next piece."""
    piece: list[FencedEntry] = []
    used = 0
    for entry in (part for each in record for part in _parts(each, max(1, room - _FRAME))):
        tokens = estimate(entry.text) + _FRAME
        if piece and used + tokens > room:
            yield piece
            piece, used = [], 0
        piece.append(entry)
        used += tokens
    if piece:
        yield piece


def _parts(entry: FencedEntry, room: int) -> Iterator[FencedEntry]:
    text, start = entry.text, 0
    most = 8 * room  # no estimate has more characters per token, so a long text is not estimated again for each part
    while len(text) - start > 1 and (len(text) - start > most or estimate(text[start:]) > room):
        window = text[start : start + most + 1]
        fitting = bisect_left(range(1, len(window)), True, key=lambda size: estimate(window[:size]) > room)
        size = _before_a_tool_word(window, max(1, fitting))
        yield msgspec.structs.replace(entry, text=text[start : start + size])
        start += size
        entry = msgspec.structs.replace(entry, who=entry.who.removesuffix(" (goes on)") + " (goes on)")
    yield msgspec.structs.replace(entry, text=text[start:]) if start else entry


def _before_a_tool_word(text: str, size: int) -> int:
    """Return where to split the text so that no word is torn, if that costs little of `size`."""
    best = max(text.rfind(" ", size * 3 // 4, size), text.rfind("\n", size * 3 // 4, size))
    return best + 1 if best > 0 else size
