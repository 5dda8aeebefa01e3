"""The state of facts is computed from the events of their log."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.api.fact_values import Fact, FactOrigin
from plugins.facts.fact_book import Ambiguous, FactBook
from plugins.facts.fact_events import (
    KINDS,
    DailyCleared,
    ExtractionFailed,
    FactEdited,
    FactEvent,
    FactForgotten,
    FactPinned,
    FactsDistilled,
    FactsDropped,
    FactsExtracted,
    FactsOpened,
    FactsUsed,
    FactsWritten,
    LoggedFactEvent,
    Superseded,
)
from plugins.facts.fact_log import decode
from sessions.events.codec import FIRST, InvalidLine, encode_line, verify
from tests.facts.samples import ago, build_book, fact

RUST, GO, PORT = fact("prefers Rust", type="preference"), fact("prefers Go"), fact("the port is 3000")


def test_what_was_extracted_written_and_distilled_is_there_and_what_was_forgotten_is_not() -> None:
    book = build_book(
        [
            FactsExtracted(session="s", ordinal=3, entries=(RUST, PORT)),
            FactsWritten(entries=(GO,), by="ann"),
            FactForgotten(id=PORT.id, by="ann"),
        ],
        ago(0),
    )
    assert list(book.facts) == [RUST.id, GO.id]
    assert book.history(PORT.id) == (1, 3)


def test_a_turn_is_looked_through_once_also_when_it_left_nothing() -> None:
    book = build_book([FactsExtracted(session="s", ordinal=3)], ago(0))
    assert book.has_extracted_turn("s", 3)
    assert book.has_extracted_turn("s", 2)
    assert not book.has_extracted_turn("s", 4)
    assert not book.has_extracted_turn("other", 1)


def test_tries_are_counted_for_the_turn_that_is_next_in_its_session() -> None:
    def failed(upto: int) -> ExtractionFailed:
        return ExtractionFailed(session="s", upto=upto, reason="No answer.")

    assert build_book([failed(9), failed(9)], ago(0)).failed_attempts("s", 9) == 2
    assert build_book([failed(9), failed(9)], ago(0)).failed_attempts("s", 20) == 0
    assert (
        build_book([failed(9), FactsExtracted(session="s", ordinal=1, upto=9), failed(20)], ago(0)).failed_attempts("s", 20)
        == 1
    )


def test_daily_facts_are_distilled_once() -> None:
    made = fact("prefers Rust to Go", layer="longterm", source="distilled")
    book = build_book(
        [FactsExtracted(session="s", ordinal=1, entries=(RUST, GO)), FactsDistilled(taken=(RUST.id,), entries=(made,))],
        ago(0),
    )
    assert book.undistilled() == [GO]
    assert book.layer("longterm") == [made]
    assert book.history(RUST.id) == (1, 2)


def test_a_fact_is_pinned_superseded_and_used_without_losing_what_it_says() -> None:
    book = build_book(
        [
            FactsWritten(entries=(GO, RUST), by="ann"),
            FactPinned(id=GO.id, pinned=True, by="ann"),
            FactsDistilled(taken=(), superseded=(Superseded(id=GO.id, newer=RUST.id, importance=0.3),)),
            FactsUsed(ids=(GO.id,), recalled=FactOrigin(session="s", seq=9)),
        ],
        ago(0),
    )
    now = book.facts[GO.id]
    assert (now.content, now.pinned, now.importance, now.used) == (GO.content, True, 0.3, ago(0))
    assert book.has_used("s", 9)
    assert not book.has_used("s", 10)
    assert book.history(GO.id) == (1, 2, 3)
    assert book.history(RUST.id) == (1,)


def test_a_fact_is_named_by_the_beginning_of_its_id_also_after_it_left() -> None:
    book = build_book([FactsWritten(entries=(RUST, GO, PORT), by="ann"), FactsDropped(ids=(PORT.id,), why="cap")], ago(0))
    assert book.named("prefers-R") == RUST.id
    assert book.named("the-port") == PORT.id
    assert book.named("nothing") is None
    assert book.named("") is None
    with pytest.raises(Ambiguous, match="2 facts"):
        book.named("prefers")


def test_events_of_a_newer_version_and_about_unknown_facts_change_nothing() -> None:
    book = build_book([FactsWritten(entries=(RUST,), by="ann")], ago(0))
    line, _ = encode_line(2, ago(0), None, FactPinned(id="elsewhere", pinned=True, by="ann"), FIRST)
    book.apply(decode(line))
    book.apply(decode(line.replace(b'"fact_pinned"', b'"fact_painted"')))
    assert list(book.facts.values()) == [RUST]


EVENTS: list[FactEvent] = [
    FactsOpened(format=1),
    FactsExtracted(session="s", ordinal=1, entries=(RUST,), failed=""),
    ExtractionFailed(session="s", upto=9, reason="No answer.", model="a:b"),
    FactsWritten(entries=(fact("größe 大きい", owner="ann", origin=FactOrigin(session="s", seq=4)),), by="ann"),
    FactsDistilled(taken=(RUST.id,), entries=(GO,), superseded=(Superseded(id=RUST.id, newer=GO.id, importance=0.4),)),
    FactPinned(id=RUST.id, pinned=True, by="ann"),
    FactEdited(id=RUST.id, content="prefers Go", type="decision", tags=("a",), by="ann", replaced=(GO.id,)),
    FactForgotten(id=RUST.id, by="ann"),
    FactsDropped(ids=(RUST.id,), why="duplicate", kept=(GO.id,)),
    DailyCleared(ids=(RUST.id,), by="ann"),
    FactsUsed(ids=(RUST.id,), recalled=FactOrigin(session="s", seq=4)),
]


def test_every_kind_is_one_line_of_the_house_and_comes_back_as_it_was() -> None:
    assert {type(event) for event in EVENTS} == set(KINDS.values())
    assert all({"seq", "at", "turn", "kind", "sum"}.isdisjoint(kind.__struct_fields__) for kind in KINDS.values())
    previous = FIRST
    for seq, event in enumerate(EVENTS, 1):
        line, digest = encode_line(seq, "2026-11-21T03:12:41.123Z", None, event, previous)
        assert verify(line, previous, seq) == digest
        assert decode(line) == LoggedFactEvent(seq=seq, at="2026-11-21T03:12:41.123Z", event=event)
        previous = digest


def test_a_line_that_lacks_a_field_is_refused() -> None:
    line, _ = encode_line(1, ago(0), None, FactForgotten(id="x", by="ann"), FIRST)
    with pytest.raises(InvalidLine):
        decode(line.replace(b'"id":"x",', b""))


FACTS = st.builds(
    Fact,
    id=st.sampled_from("abcdef"),
    content=st.sampled_from(["one", "two"]),
    created=st.just(ago(1)),
    source=st.just("manual"),
    layer=st.sampled_from(["daily", "longterm"]),
)
IDS = st.lists(st.sampled_from("abcdef"), max_size=3).map(tuple)
STORY = st.lists(
    st.one_of(
        st.builds(FactsExtracted, session=st.sampled_from("st"), ordinal=st.integers(1, 9), entries=st.tuples(FACTS)),
        st.builds(ExtractionFailed, session=st.sampled_from("st"), upto=st.integers(1, 9), reason=st.just("no")),
        st.builds(FactsWritten, entries=st.tuples(FACTS), by=st.just("ann")),
        st.builds(FactsDistilled, taken=IDS, entries=st.tuples(FACTS)),
        st.builds(FactPinned, id=st.sampled_from("abcdef"), pinned=st.booleans(), by=st.just("ann")),
        st.builds(FactEdited, id=st.sampled_from("abcdef"), content=st.just("two"), by=st.just("ann"), replaced=IDS),
        st.builds(FactsDropped, ids=IDS, why=st.just("cap")),
        st.builds(FactsUsed, ids=IDS, recalled=st.builds(FactOrigin, session=st.sampled_from("st"), seq=st.integers(1, 99))),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(STORY, st.integers(0, 30))
def test_a_restart_at_any_point_changes_nothing(story: list[FactEvent], stop: int) -> None:
    lines, previous = [], FIRST
    for seq, event in enumerate(story, 1):
        line, previous = encode_line(seq, ago(0), None, event, previous)
        lines.append(line)
    live = build_book(story, ago(0))
    again = FactBook()
    for line in lines[:stop]:
        again.apply(decode(line))
    for line in lines[stop:]:
        again.apply(decode(line))
    assert vars(again) == vars(live)
