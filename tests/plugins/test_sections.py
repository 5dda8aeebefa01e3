"""The form of a summary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.policies.summary_sections import CONSTRAINTS, GOALS, NEXT, PROGRESS, SECTIONS, format_sections, parse_sections

_TEXTS = st.lists(st.sampled_from(["- a path: src/a.py", "### Done", "- [x] **bold** at last", "text"]), max_size=4).map(
    "\n".join
)


@given(st.dictionaries(st.sampled_from(SECTIONS), _TEXTS))
def test_what_is_written_is_read_again(sections: dict[str, str]) -> None:
    assert parse_sections(format_sections(sections)) == {name: sections.get(name, "") for name in SECTIONS}


@pytest.mark.parametrize(
    "summary",
    [
        "Here it is.\n\n# goals\n- a\n# CONSTRAINTS AND PREFERENCES:\nb\n### Next Steps ###\n- c",
        "**Goals**\n- a\n**Constraints & Preferences:**\nb\n**Next steps**\n\n- c\n\n",
        "##Goals\n- a\n##  Constraints & Preferences\nb\n## Next Steps\n- c",
    ],
)
def test_a_models_headings_are_read_as_they_were_meant(summary: str) -> None:
    assert parse_sections(summary) == {GOALS: "- a", CONSTRAINTS: "b", NEXT: "- c"}


def test_parts_belong_to_their_section_and_a_section_that_comes_twice_is_one() -> None:
    text = "## Progress\n### Done\n- a\n## Goals\n(none)\n## Progress\n**Blocked**\n- b"
    assert parse_sections(text) == {PROGRESS: "### Done\n- a\n**Blocked**\n- b", GOALS: ""}


def test_a_text_without_headings_has_no_sections() -> None:
    assert parse_sections("Goals: to have none\n- Goals\nSee the Next Steps below.") == {}


def test_a_hostile_text_is_read_in_time() -> None:
    assert parse_sections("#" * 100_000 + "\n" + "** " * 100_000 + "\n## " + " " * 100_000 + "x") == {}
