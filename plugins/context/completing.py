"""What a model left out of its summary is added by hand: what was asked last, and identifiers with what was said of them.

Pure; nothing is added that was not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from plugins.context.fencing import harmless
from plugins.context.identifiers import is_named
from plugins.context.sections import GOALS, IDENTIFIERS, parsed, written
from plugins.context.summary_checks import Checked, spoken_texts
from plugins.summaries import Leaving
from sessions.tokens import estimate

ASK = 400
"""Characters of a person's last message that are added."""

AROUND = 160
"""Characters of what was said around an identifier."""

_SENTENCE_ENDS = re.compile(r"[\n。！？]|[.!?](?=\s)")


def completed(summary: str, leaving: Leaving, checked: Checked, lost: Sequence[str]) -> str:
    """The summary in its form, with what `checked` found missing, and under a strict policy with as many of the `lost`
    identifiers, the first of them first, as it has room for."""
    sections = parsed(summary)
    if checked.unasked:
        _add(sections, GOALS, [f"- Asked last: {_line(checked.unasked, ASK)}"])
    _add(sections, IDENTIFIERS, _told(checked.missing, leaving))
    if leaving.identifier_policy == "strict":
        room = leaving.limit - estimate(written(sections))
        others = [each for each in lost if each not in checked.missing]
        _add(sections, IDENTIFIERS, _fitting(_told(others, leaving), room))
    return written(sections)


def sentence_around(text: str, start: int, most: int = AROUND) -> str:
    """The sentence in which something stands at `start`, as one line of at most about `most` characters."""
    low, high = max(0, start - most), min(len(text), start + most)
    for end in _SENTENCE_ENDS.finditer(text, low, high):
        if end.end() <= start:
            low = end.end()
        elif end.start() > start:
            high = end.end()
            break
    return _line(text[low:high], most)


def _told(names: Iterable[str], leaving: Leaving) -> list[str]:
    """A line for each name, with what was said where it stood last; one line for names that stood together."""
    texts = [*spoken_texts(leaving), leaving.summary]
    lines: dict[str, None] = {}
    for name in names:
        if any(is_named(name, line) for line in lines):
            continue
        text, start = next(((text, at) for text in texts if (at := text.rfind(name)) >= 0), ("", -1))
        sentence = sentence_around(text, start) if start >= 0 else ""
        lines[f"- {sentence}" if is_named(name, sentence) else f"- {name}"] = None
    return list(lines)


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    taken = []
    for line in lines:
        room -= estimate(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken


def _add(sections: dict[str, str], name: str, lines: Sequence[str]) -> None:
    sections[name] = "\n".join(filter(None, [sections.get(name, ""), *lines]))


def _line(text: str, most: int) -> str:
    """A text as one line, without the mark of a list, cut at so many characters."""
    line = re.sub(r"^(?:[-*+•]|\d+[.)]) ", "", " ".join(harmless(text[: 2 * most]).split()))
    return line if len(line) <= most else f"{line[: most - 2]} …"
