"""Chunks of a note: along its headings, with the lines they come from."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from plugins.api.memory.chunks import Chunk, chunks_of, day_of
from sessions.events.tokens import estimate

NOTE = """# Facts

The door's code is 4711.

## Ana

Likes tea.

```
## no heading
```
"""


def test_a_chunk_never_crosses_a_heading_and_knows_its_lines() -> None:
    assert chunks_of("MEMORY.md", NOTE) == [
        Chunk(path="MEMORY.md", first=3, last=3, headings=("Facts",), text="The door's code is 4711."),
        Chunk(path="MEMORY.md", first=7, last=11, headings=("Facts", "Ana"), text="Likes tea.\n\n```\n## no heading\n```"),
    ]


def test_the_embedded_text_says_when_and_under_which_headings_it_was_written() -> None:
    (chunk,) = chunks_of("memory/2026-11-21.md", "# Work\n## Ana\nLikes tea.")
    assert chunk.embedded() == "2026-11-21 > Work > Ana\nLikes tea."
    assert day_of("memory/2026-11-21-standup.md") == "2026-11-21"
    assert day_of("memory/projects.md") == day_of("memory/2026-13-41.md") == ""


def test_a_long_section_is_cut_between_lines_and_overlaps() -> None:
    note = "\n".join(f"{number}. the quick brown fox jumps over the lazy dog" for number in range(100))
    chunks = chunks_of("MEMORY.md", note)
    assert (chunks[0].first, chunks[-1].last) == (1, 100)
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        assert before.first < after.first <= before.last < after.last
        assert estimate(after.text) <= 400


def test_a_line_that_is_too_long_is_split_and_none_of_it_is_lost_or_repeated() -> None:
    words = " ".join(f"word{number}" for number in range(2000))
    chunks = chunks_of("MEMORY.md", words)
    assert {(chunk.first, chunk.last) for chunk in chunks} == {(1, 1)}
    assert " ".join(chunk.text for chunk in chunks).split() == words.split()


def test_the_marks_of_the_daemon_and_odd_line_ends_move_no_line() -> None:
    (chunk,) = chunks_of("MEMORY.md", "<!-- exuvia 0123456789abcdef -->\r\nfirst\u2028still first\r\n")
    assert (chunk.first, chunk.last, chunk.text) == (2, 2, "first\u2028still first")


@given(st.text(alphabet="a #`\n~-é日", max_size=400), st.integers(8, 60))
def test_every_word_of_a_note_is_found_at_the_lines_that_its_chunk_names(note: str, tokens: int) -> None:
    lines = note.split("\n")
    covered: set[int] = set()
    for chunk in chunks_of("MEMORY.md", note, tokens=tokens, overlap=tokens // 5):
        covered |= set(range(chunk.first, chunk.last + 1))
        there = "\n".join(lines[chunk.first - 1 : chunk.last])
        assert all(part.strip() in there for part in chunk.text.split("\n"))
    silent = [line for number, line in enumerate(lines, 1) if number not in covered]
    assert all(not line.strip() or line.startswith("#") for line in silent)
