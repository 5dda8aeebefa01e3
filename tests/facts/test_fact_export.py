"""Exported facts can be imported again, and invalid entries are refused by number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.fact_values import TYPES, Fact, FactOrigin, InvalidFact, validate_content
from plugins.facts import fact_export
from plugins.facts.fact_export import encode_facts, parse_facts
from tests.facts.samples import NOW, fact

TEXT = st.text(min_size=1, max_size=60).map(lambda text: text + "x").map(validate_content)
FACTS = st.lists(
    st.builds(
        Fact,
        id=st.uuids().map(str),
        content=TEXT,
        type=st.sampled_from(TYPES),
        tags=st.lists(TEXT, max_size=3, unique=True).map(tuple),
        importance=st.floats(0.3, 1.0),
        created=st.just("2026-11-20T12:00:00.000Z"),
        used=st.sampled_from(["", "2026-11-21T12:00:00.000Z"]),
        source=st.sampled_from(["auto-extracted", "manual", "distilled", "imported"]),
        layer=st.sampled_from(["daily", "longterm"]),
        pinned=st.booleans(),
        owner=st.sampled_from(["", "ann"]),
        origin=st.none() | st.builds(FactOrigin, session=st.just("s"), seq=st.integers(1, 9)),
    ),
    max_size=6,
    unique_by=lambda each: each.id,
)


@given(FACTS)
def test_what_was_exported_comes_back_as_it_was(facts: list[Fact]) -> None:
    found = parse_facts(encode_facts(facts), (), NOW)
    assert found.refused == ()
    assert list(found.entries) == facts


def document(*entries: Any) -> bytes:
    return json.dumps({"entries": entries}).encode()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("text", "Expected `object`, got `str`"),
        ({}, "needs words"),
        ({"content": 3}, "got `int` - at `$.content`"),
        ({"content": "x" * 2001}, "2,001"),
        ({"content": "x", "type": "opinion"}, "'opinion'"),
        ({"content": "x", "tags": "a"}, "got `str` - at `$.tags`"),
        ({"content": "x", "tags": ["a"] * 3 + ["b" * 99]}, "tags"),
        ({"content": "x", "importance": "high"}, "got `str` - at `$.importance`"),
        ({"content": "x", "importance": True}, "got `bool` - at `$.importance`"),
        ({"content": "x", "importance": 10**400}, "out of range"),
        ({"content": "x", "source": "dreams"}, "'dreams'"),
        ({"content": "x", "id": "../x"}, "id"),
        ({"content": "x", "layer": "attic"}, "'attic'"),
        ({"content": "x", "pinned": 1}, "got `int` - at `$.pinned`"),
        ({"content": "x", "createdAt": "yesterday"}, "not a valid time"),
        ({"content": "x", "createdAt": 1e40}, "not a valid time"),
        ({"content": "x", "origin": {"session": "s"}}, "origin"),
        ({"content": "x", "id": "known"}, "already exists"),
    ],
)
def test_an_entry_that_is_not_sound_is_refused_and_the_others_come_in(entry: Any, why: str) -> None:
    found = parse_facts(document({"content": "good"}, entry), {"known"}, NOW)
    assert [each.content for each in found.entries] == ["good"]
    assert len(found.refused) == 1
    assert found.refused[0].startswith("Entry 2: ")
    assert why in found.refused[0]


@pytest.mark.parametrize("broken", [b"", b"{", b"\xff", b"3", b'{"facts": []}', b'{"entries": {}}', b"[" * 100_000])
def test_what_is_no_document_of_facts_is_refused_as_a_whole(broken: bytes) -> None:
    with pytest.raises(InvalidFact):
        parse_facts(broken, (), NOW)


def test_a_document_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    document = encode_facts([fact("x")])
    monkeypatch.setattr(fact_export, "LONGEST_FILE", len(document))
    assert len(parse_facts(document, (), NOW).entries) == 1
    with pytest.raises(InvalidFact, match="A document has at most"):
        parse_facts(document + b" ", (), NOW)


def test_the_export_of_the_reference_is_read_with_times_in_milliseconds() -> None:
    given_ = {
        "daily": [{"id": "a", "content": "x", "createdAt": 1774224000000, "source": "auto-extracted"}],
        "longterm": [{"id": "b", "content": "y", "createdAt": "2026-03-23T00:00:00+00:00", "lastUsedAt": None}],
    }
    one, two = parse_facts(json.dumps(given_).encode(), (), NOW).entries
    assert (one.layer, two.layer) == ("daily", "longterm")
    assert one.created == two.created == "2026-03-23T00:00:00.000Z"


def test_an_entry_that_stands_twice_comes_in_once() -> None:
    found = parse_facts(encode_facts([fact("x", id="1"), fact("y", id="1")]), (), NOW)
    assert len(found.entries) == len(found.refused) == 1
