"""Characters that no screen shows, or that change how others are shown: control, direction, filler and tag characters."""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f"
    "\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ue000-\uf8ff\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
"""Control, direction, zero-width, filler, tag and private characters, and variation selectors except those of emoji."""


def visible(text: str) -> str:
    """Return a text with everything invisible in it written as `\\u{…}`.

    A model reads characters that no screen shows, such as a copy of ASCII in Unicode's tags, so a person must see them too.
    """
    return _INVISIBLE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text.replace("\r\n", "\n"))
