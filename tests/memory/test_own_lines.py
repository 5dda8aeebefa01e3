"""Failure 23: what was recalled is never stored as memory again, wherever it is copied to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugins.api.memory.chunks import chunks_of, own_lines
from plugins.support.fencing import FencedEntry, fenced, quoted
from sessions.events.events import MemoryRecalled, RecalledHit
from sessions.state.view import recalled_message

HITS = tuple(
    RecalledHit(path=path, lines=(3, 4), digest="d", text=text, score=1.0, headings=headings)
    for path, text, headings in (
        ("memory/2026 plans.md", "Rust.\n\n# And more", ("Monday", "Tea")),
        ("sessions/20261121-120000-aaaaaa.jsonl", "ana: yes", ()),
    )
)
RECALLED = recalled_message(MemoryRecalled(query="q", hits=HITS, mark="5a7c09e1", millis=1)).text
RETURNED = '{"results":[{"citation":"memory/a.md#L3-L4","score":0.5,"text":"Rust."}]}'


def test_recalled_text_that_was_written_into_a_note_is_not_indexed_and_lines_keep_their_numbers() -> None:
    note = f"# Day\n\nBefore.\n\n{RECALLED}\n\n{RETURNED}\nAfter.\n"
    last = note.count("\n")
    (chunk,) = chunks_of("memory/a.md", note)
    assert (chunk.first, chunk.last) == (3, last)
    assert [line for line in chunk.text.split("\n") if line] == ["Before.", "After."]


def test_neither_are_notes_and_records_as_they_are_fenced_for_a_model() -> None:
    record = fenced(
        [FencedEntry(who="the person", text="My tea is green."), FencedEntry(who="the assistant", text="Noted.")]
    )
    shown = quoted("My tea is green.", "MEMORY.md")
    assert [line for _, line in own_lines(f"a\n{record}\nb\n{shown}\nc")] == ["a", "b", "c"]


def test_a_mark_without_its_end_hides_nothing_else() -> None:
    assert own_lines("[5a7c09e1] memory/a.md#L3-L4:\nMine.\n[deadbeef] a list:\nMine too.") == [
        (2, "Mine."),
        (3, "[deadbeef] a list:"),
        (4, "Mine too."),
    ]


@given(st.lists(st.sampled_from(["mine", "", "[x] y", "- [ ] open", "[12345678]", "see memory/a.md#L3-L4:", "# Head:"])))
def test_a_text_of_ones_own_stays_whole(lines: list[str]) -> None:
    assert own_lines("\n".join(lines)) == list(enumerate(lines or [""], 1))
