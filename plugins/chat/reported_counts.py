"""Counts of tokens as servers report them: integers mostly, and whatever else a compatible server thinks of."""

from __future__ import annotations

from typing import Any

from sessions.messages import count_of


def count(usage: Any, *names: str) -> int | None:
    """Return the count at this path of names in a usage object; None where there is none, or what is no number."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return count_of(usage)
