"""No text makes the functions that read people's texts slow, whatever they do with it."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from plugins.support.text.spelling import MARKS, alike
from tests.attacks.measuring import measured
from tests.attacks.patterns import PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_every_text_function_processes_a_megabyte_of_anything_within_seconds(package: str) -> None:
    tried, refused = measured("tests.attacks.texts", package)
    assert len(tried) >= 10
    assert refused == []


def test_long_runs_of_combining_marks_are_truncated_for_every_mark_of_unicode() -> None:
    """A mark that the pattern does not know would hold the interpreter for minutes."""
    marks = [
        each for each in map(chr, range(sys.maxunicode)) if unicodedata.combining(unicodedata.normalize("NFKD", each)[0])
    ]
    assert len(marks) > 800
    assert [hex(ord(mark)) for mark in marks if len(alike(mark * 1_000)) > 3 * MARKS] == []


def test_ordinary_text_keeps_its_combining_marks() -> None:
    for text in ("résumé", "ｶﾞｷﾞｸﾞ", "नमस्ते दुनिया", "Việt Nam", "שָׁלוֹם", "🎉" * 20):
        assert alike(text) == alike(unicodedata.normalize("NFD", text))
