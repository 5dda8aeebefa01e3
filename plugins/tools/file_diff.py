"""The difference of two versions of a file, as a unified diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

CONTEXT_LINES = 3
"""Unchanged lines shown around changed ones."""

MAX_PAIRS = 1_000_000
"""Maximum pairs of differing lines that are compared; above it, all lines of one version replace all lines of the other."""

NO_FILE = "/dev/null"
"""The name of a version that does not exist."""

_Opcode = tuple[str, int, int, int, int]


def unified_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """Return the difference of two versions, None for no file; "" if they are equal.

    Bytes that are no UTF-8 are shown as `\\xNN`. A last line without a line ending is followed by a remark, as in `diff -u`.
    """
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    header = [f"--- {path if before is not None else NO_FILE}\n", f"+++ {path if after is not None else NO_FILE}\n"]
    return "".join([*header, *_hunks(old, new)])


def _lines(content: bytes | None) -> list[str]:
    """Return the lines, each with its ending; only `\\n` ends one."""
    text = (content or b"").decode("utf-8", "backslashreplace")
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()
    return [*lines, f"{last}\\ No newline at end of file\n"] if last != "\n" else lines


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    opcodes = _opcodes(old, new)
    start = 0
    while start < len(opcodes):
        end = start + 1  # changes with few unchanged lines between them are shown in one hunk
        while end < len(opcodes) and opcodes[end][1] - opcodes[end - 1][2] <= 2 * CONTEXT_LINES:
            end += 1
        yield from _hunk(old, new, opcodes[start:end])
        start = end


def _hunk(old: Sequence[str], new: Sequence[str], opcodes: Sequence[_Opcode]) -> Iterator[str]:
    """Yield the lines of a hunk; `opcodes` are its changes."""
    _, old_first, _, new_first, _ = opcodes[0]
    _, _, old_last, _, new_last = opcodes[-1]
    lead = min(CONTEXT_LINES, old_first)
    trail = min(CONTEXT_LINES, len(old) - old_last)
    yield f"@@ -{_span(old_first - lead, old_last + trail)} +{_span(new_first - lead, new_last + trail)} @@\n"
    at = old_first - lead
    for _, i1, i2, j1, j2 in opcodes:
        yield from (f" {line}" for line in old[at:i1])
        yield from (f"-{line}" for line in old[i1:i2])
        yield from (f"+{line}" for line in new[j1:j2])
        at = i2
    yield from (f" {line}" for line in old[at : at + trail])


def _span(first: int, end: int) -> str:
    count = end - first
    return f"{first + (count > 0)}" if count == 1 else f"{first + (count > 0)},{count}"


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[_Opcode]:
    """Return the changes. The common beginning and end are skipped first: most edits are small."""
    head, most = 0, min(len(old), len(new))
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(old_middle) * len(new_middle) > MAX_PAIRS:
        return [("replace", head, len(old) - tail, head, len(new) - tail)]
    matched = SequenceMatcher(None, old_middle, new_middle).get_opcodes()
    return [(tag, i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in matched if tag != "equal"]
