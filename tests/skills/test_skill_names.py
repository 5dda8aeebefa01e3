"""The names of skills, and names that imitate others."""

from __future__ import annotations

import pytest

from plugins.skills.skill_names import name_fault, skeleton


@pytest.mark.parametrize(
    "name", ["a", "pdf-processing", "s3", "x" * 64, "überblick", "会议纪要", "議事録メモ", "мой-навык", "회의록", "ελληνικά"]
)
def test_names_of_the_convention_are_allowed_in_every_script(name: str) -> None:
    assert name_fault(name) == ""


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "is empty"),
        ("x" * 65, "has 65 characters"),
        ("PDF", "upper-case"),
        ("-a", "hyphen"),
        ("a-", "hyphen"),
        ("a--b", "two hyphens"),
        ("a b", "letters, digits and hyphens"),
        ("a_b", "letters, digits and hyphens"),
        ("../a", "letters, digits and hyphens"),
        ("a/b", "letters, digits and hyphens"),
        ("a\u200bb", "letters, digits and hyphens"),
        ("a\u202eb", "letters, digits and hyphens"),
        ("a\u2010b", "letters, digits and hyphens"),
        ("cafe\u0301", "Unicode replaces"),
        ("ｇｉｔ", "Unicode replaces"),
        ("𝐠𝐢𝐭", "Unicode replaces"),
        ("ﬁle", "Unicode replaces"),
        ("pаypal", "mixes letters of several scripts (Cyrillic, Latin)"),
        ("gοogle", "mixes letters of several scripts"),
        ("сосо", "looks like 'coco'"),
        ("хе", "looks like 'xe'"),
        ("ορο", "looks like 'opo'"),
        ("ıtem", "may look like another"),
        ("ɡit", "may look like another"),
        ("ꮯ", "may look like another"),
        ("a١", "letters, digits and hyphens"),
    ],
)
def test_names_against_the_convention_and_homoglyphs_are_refused(name: str, fault: str) -> None:
    assert fault in name_fault(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [("git-helper", "git-he1per"), ("tools", "t00ls"), ("modern", "modem"), ("wave", "vvave"), ("resume", "résumé")],
)
def test_names_that_look_alike_have_the_same_skeleton(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other)
    assert skeleton(one) != skeleton(f"{other}x")
