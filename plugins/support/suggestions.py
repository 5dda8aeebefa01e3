"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, before: str = "", mark: str = "", least: float = 0.6) -> str:
    """Return the end of a sentence that suggests the most similar known name, or "" if none is similar. `before` is put
    before the name, `mark` around both; `least` is the minimum similarity, from 0 to 1."""
    import difflib  # noqa: PLC0415 - 5 ms, for whoever has made a mistake

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=least)
    return f"; did you mean {mark}{before}{near[0]}{mark}?" if near else ""
