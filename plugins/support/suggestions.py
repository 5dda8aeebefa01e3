"""Names that a person may have meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, before: str = "", mark: str = "", least: float = 0.6) -> str:
    """The end of a sentence that names the nearest of the known names, empty where none is near. `before` stands before that
    name, `mark` around both; `least` is how near it must be, from 0 to 1."""
    import difflib  # noqa: PLC0415 - 5 ms, for whoever has made a mistake

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=least)
    return f"; did you mean {mark}{before}{near[0]}{mark}?" if near else ""
