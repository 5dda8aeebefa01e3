"""The generated sections of the pages are what the code says now."""

from __future__ import annotations

import pytest

from tests.docs.generated import DOCS, SECTIONS, renewed


@pytest.mark.parametrize(("page", "name"), SECTIONS)
def test_a_generated_section_is_up_to_date(page: str, name: str) -> None:
    text = (DOCS / page).read_text()
    assert renewed(text, name, SECTIONS[page, name]()) == text, "python -m tests.docs.generated writes it"
