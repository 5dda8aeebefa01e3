"""The sequence whose versions share their items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.state.persistent_list import PersistentList


@given(st.lists(st.tuples(st.integers(0, 20), st.integers())))
def test_every_version_keeps_its_items(steps: list[tuple[int, int]]) -> None:
    versions: list[tuple[PersistentList[int], list[int]]] = [(PersistentList(), [])]
    for which, item in steps:
        grown, expected = versions[which % len(versions)]
        versions.append((grown.grown(item), [*expected, item]))
    for grown, expected in versions:
        assert list(grown) == expected
        assert len(grown) == len(expected)
        assert grown[-2:] == expected[-2:]
        assert grown == PersistentList(expected)


def test_an_index_beyond_its_own_length_is_refused_even_if_a_later_version_has_it() -> None:
    first = PersistentList([1])
    first.grown(2)
    assert first[0] == first[-1] == 1
    with pytest.raises(IndexError):
        first[1]
