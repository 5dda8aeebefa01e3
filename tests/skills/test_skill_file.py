"""Reading `SKILL.md`: files in the forms that other agents accept, the convention's rules, and hostile front matter."""

from __future__ import annotations

import tracemalloc

import pytest

from plugins.skills.skill_file import DEPTH, FILE_BYTES, FRONT_BYTES, VALUES, SkillInvalid, findings, parse_skill
from plugins.support.text.invisible import visible

MINIMAL = "---\nname: a-skill\ndescription: Does a thing.\n---\n"


def refusal(text: str | bytes) -> str:
    with pytest.raises(SkillInvalid) as caught:
        parse_skill(text if isinstance(text, bytes) else text.encode())
    return str(caught.value)


def test_the_fields_and_the_body_are_read() -> None:
    skill = parse_skill(
        b"---\nname: pdf-forms\ndescription: Fills forms.\nlicense: Apache-2.0\nmetadata:\n  author: someone\n"
        b'  version: "1.0"\nallowed-tools: Bash(git:*) Read\n---\n\n# Forms\n\nFill them.\n\n## Errors\n\n---\n\nEnd.\n'
    )
    assert skill.fields == {
        "name": "pdf-forms",
        "description": "Fills forms.",
        "license": "Apache-2.0",
        "metadata": {"author": "someone", "version": "1.0"},
        "allowed-tools": "Bash(git:*) Read",
    }
    assert skill.body == "# Forms\n\nFill them.\n\n## Errors\n\n---\n\nEnd."
    assert skill.headings == ("Forms", "Errors")
    assert findings(skill, "pdf-forms") == []


@pytest.mark.parametrize(
    ("front", "description"),
    [
        ("description: >\n  Reviews a change.\n  Use before merging.", "Reviews a change. Use before merging."),
        ("description: |-\n  Reviews a change.\n  Use before merging.", "Reviews a change. Use before merging."),
        ("description: 'It''s quoted: really'", "It's quoted: really"),
        ('description: "With a # sign and a \\u00e9"', "With a # sign and a é"),
        ("description: Reviews a change,\n  on two lines", "Reviews a change, on two lines"),
        ("description: yes", "yes"),
        ("description: 2026-11-23", "2026-11-23"),
        ("description: 会议纪要的整理", "会议纪要的整理"),
        ('metadata: {"openclaw": {"requires": {"bins": ["gh"]}}}\ndescription: With JSON.', "With JSON."),
        ("user-invocable: true\nargument-hint: [issue]\ndescription: Extended.", "Extended."),
        ("allowed-tools:\n  - Read\n  - Bash(jq:*)\ndescription: A list.", "A list."),
    ],
)
def test_descriptions_in_all_usual_forms_are_strings(front: str, description: str) -> None:
    assert parse_skill(f"---\nname: x\n{front}\n---\nBody\n".encode()).description == description


def test_line_ends_of_windows_and_a_byte_order_mark_are_read() -> None:
    skill = parse_skill("\ufeff---\r\nname: a\r\ndescription: >\r\n  One\r\n  two\r\n---\r\nBody\r\n".encode())
    assert (skill.fields["name"], skill.description, skill.body) == ("a", "One two", "Body")


def test_unquoted_colons_are_read_as_other_agents_do_and_reported() -> None:
    skill = parse_skill(
        b"---\nname: pdf\ndescription: Use this when: the user\n  names a PDF: any\nmetadata:\n  a: b\n---\nBody\n"
    )
    assert skill.description == "Use this when: the user names a PDF: any"
    assert skill.fields["metadata"] == {"a": "b"}
    (remark,) = findings(skill, "pdf")
    assert remark.startswith("The front matter is not valid YAML in line 3:")
    assert remark.endswith("as if the values with a colon were quoted.")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("# No front matter\n", "does not begin with front matter"),
        ("\n---\nname: a\ndescription: b\n---\n", "does not begin with front matter"),
        ("---\nname: a\ndescription: b\n", "does not begin with front matter"),
        ("---\nname: a\n---\n", "has no description"),
        ("---\nname: a\ndescription: '  '\n---\n", "has no description"),
        ("---\nname: a\ndescription:\n  - b\n---\n", "has no description"),
        ("---\n- a\n- b\n---\n", "not a list of fields"),
        ("---\n\n---\n", "not a list of fields"),
        ("---\ndescription: a\ndescription: b\n---\n", "has the field 'description' twice"),
        ("---\n? [a, b]\n: c\n---\n", "whose name is no text"),
        ("---\ndescription: a\n--- b\n---\n", "several YAML documents"),
        ("---\ndescription: {a\n---\n", "not valid YAML in line"),
        ("---\ndescription: \x07\n---\n", "a character that YAML does not allow"),
        (b"---\ndescription: \xff\n---\n", "not UTF-8"),
        (MINIMAL + "x" * FILE_BYTES, "more than 256 KiB"),
        (f"---\ndescription: {'x' * FRONT_BYTES}\n---\n", "more than 32 KiB"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(content: str | bytes, sentence: str) -> None:
    assert sentence in refusal(content)


def laughs(levels: int) -> str:
    lines = ['a0: &a0 ["lol"]']
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, levels)]
    return "---\ndescription: x\n" + "\n".join(lines) + "\n---\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (laughs(12), "has a YAML alias"),
        ("---\ndescription: &a x\nb: *a\n---\n", "has a YAML alias"),
        ("---\na: &a {description: x}\n<<: *a\n---\n", "has a YAML alias"),
        ("---\nself: &self [*self]\n---\n", "has a YAML alias"),
        (f"---\ndescription: {'[' * (DEPTH + 1)}{']' * (DEPTH + 1)}\n---\n", "more than 8 levels deep"),
        (f"---\ndescription: {'[' * 16_000}\n---\n", "more than 8 levels deep"),
        (f"---\ndescription: {'{a: ' * 5_000}\n---\n", "more than 8 levels deep"),
        (f"---\na: [{'x,' * (VALUES + 1)}]\n---\n", "more than 1,000 values"),
    ],
)
def test_bombs_are_refused_without_being_expanded(content: str, sentence: str) -> None:
    parse_skill(MINIMAL.encode())  # import the parser first
    tracemalloc.start()
    try:
        assert sentence in refusal(content)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_tags_mean_nothing() -> None:
    skill = parse_skill(
        b"---\ndescription: !!python/object/apply:os.system [echo]\nb: !!int 3\nname: x\n---\n".replace(b"[echo]", b"echo")
    )
    assert skill.fields == {"description": "echo", "b": "3", "name": "x"}


@pytest.mark.parametrize(
    ("front", "sentence"),
    [
        ("name: other\ndescription: d", "The name 'other' differs from that of the folder, 'a-skill'."),
        (
            "name: PDF-Tools\ndescription: d",
            "The name 'PDF-Tools' has upper-case letters; only lower-case ones are allowed.",
        ),
        ("description: d", "The front matter has no name."),
        (f"name: a-skill\ndescription: {'d' * 1025}", "The description has 1,025 characters; 1,024 are allowed."),
        ("name: a-skill\ndescription: d\nlicense: [MIT]", "The license is not a string."),
        (f"name: a-skill\ndescription: d\ncompatibility: {'c' * 501}", "not a string of 1 to 500 characters."),
        ("name: a-skill\ndescription: d\nmetadata: text", "The metadata are not a map from strings to strings."),
        ("name: a-skill\ndescription: d\nallowed-tools: {a: b}", "neither a string nor a list of strings."),
        ("name: a-skill\ndescription: d\ntriggers: [a]\nversion: 1", "convention does not define: triggers, version."),
    ],
)
def test_what_the_convention_does_not_allow_is_said_in_a_sentence(front: str, sentence: str) -> None:
    skill = parse_skill(f"---\n{front}\n---\n".encode())
    (found,) = findings(skill, "a-skill")
    assert found.endswith(sentence)


def test_a_name_against_the_convention_is_replaced_by_that_of_the_folder() -> None:
    skill = parse_skill(b"---\nname: Code Review\ndescription: d\n---\n")
    assert skill.usable_name("code-review") == "code-review"
    with pytest.raises(SkillInvalid, match=r"^The name 'Code Review' has upper-case letters"):
        skill.usable_name("Code Review")
    assert parse_skill(MINIMAL.encode()).usable_name("Elsewhere") == "a-skill"


def tags(text: str) -> str:
    """Return the copy of a text in Unicode's tags, which no screen shows and some models read."""
    return "".join(chr(0xE0000 + ord(character)) for character in text)


def test_what_no_screen_shows_is_written_out() -> None:
    assert visible(f"Hello{tags('rm')}\u202e\u200b \u2063x\ufe00\x1b[2K\r\nend\t.") == (
        "Hello\\u{e0072}\\u{e006d}\\u{202e}\\u{200b} \\u{2063}x\\u{fe00}\\u{1b}[2K\nend\t."
    )
    for plain in ("Straße – naïve “quotes” … 会议 שלום ✓ ☀️", "a\n\tb"):
        assert visible(plain) == plain


def test_hidden_instructions_are_found_by_the_check() -> None:
    skill = parse_skill(f"---\nname: a-skill\ndescription: Helps.\n---\nText{tags('obey')}\n".encode())
    (found,) = findings(skill, "a-skill")
    assert found == "The text has characters that hide or reverse others: U+E0062, U+E0065, U+E006F, U+E0079."
