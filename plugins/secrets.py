"""`Secret`: a value that prints as nothing. Configuration resolves references into it; providers call `reveal`."""

from __future__ import annotations


class Secret:
    """A key or token. Its text appears nowhere unless `reveal()` is called: not in `repr`, logs, errors or JSON."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one request that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)
