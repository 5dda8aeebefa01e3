"""An immutable sequence to which an item can be added in O(1), sharing storage with the previous version.

A session's view gains one message at a time for months. A tuple would be copied at each step; here all versions share one
list, each remembers its own length, and only the newest may append to it in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class PersistentList(Sequence[T], Generic[T]):
    """An immutable sequence; `grown` returns a version with one more item."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def grown(self, item: T) -> PersistentList[T]:
        """Return a new sequence ending in `item`; O(1) unless another item was already added to this version."""
        items = self._items if len(self._items) == self._length else self._items[: self._length]
        items.append(item)
        successor: PersistentList[T] = PersistentList.__new__(PersistentList)
        successor._items = items
        successor._length = self._length + 1
        return successor

    def extends(self, before: object) -> bool:
        """Return True if this sequence shares storage with `before` and extends it; no items are compared."""
        return isinstance(before, PersistentList) and before._items is self._items and before._length <= self._length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return self._items[slice(*index.indices(self._length))] if (index.step or 1) > 0 else list(self)[index]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            return tuple(self) == other
        return isinstance(other, PersistentList) and (self._length == other._length) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PersistentList({list(self)!r})"


def plain(value: Any) -> Any:
    """Convert a `PersistentList` to a list, as msgspec's `enc_hook`."""
    if isinstance(value, PersistentList):
        return list(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be encoded")
