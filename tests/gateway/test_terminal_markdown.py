"""Markdown on a terminal: where it is split while it grows, how it is rendered; nothing is lost, nothing harmful is
shown."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from gateway.support.printable import printable
from gateway.terminal.markdown.answer import Answer
from gateway.terminal.markdown.markdown_parser import split
from gateway.terminal.markdown.markdown_rendering import code_lines, rendered

COLOURS = re.compile(r"\x1b\[[0-9;]*m")

SAMPLES = [
    "| Donaudampfschifffahrt | Fernsprechanschlussstelle |\n|--|--|\n| Rindfleischetikettierung | x |\n",
    "# Title\n\nHello **bold** and `code`.\nSecond line\n\n- one\n  - two\n\n    ```\n    ls\n    ```\n- three\n\nend",
    "| a | b |\n|---|--:|\n| 1 | 22 |\n| 你 | x |\n\nAfter\n===\n> quote\n> more\n\n***\n1. a\n2. b\n",
    '```python\ndef f(x):\n    """doc\n\n    more"""\n    return x\n```\ntext ``` not code\n\n~~~\nopen\n\nend',
    "\n\n````md\n```\ninner\n```\n````\n| no | table\n    indented\n\n    code\n\n- a\n-\n- b\n",
    "Setext\n---\npara\n- list\n\n\n  still list\n\nno list\n<b>html</b>\n\n[ref]: http://example.org\n",
]

MARKS = ["# ", "- ", "1. ", "> ", "```", "~~~", "    ", "| ", "|--|--|", "*", "===", "$$", "\\[", "\\]", "_", "\\"]
MARKUP = st.lists(st.sampled_from([*MARKS, "py", "\n", "\n\n", "a", "b c", "你好"]), max_size=25).map("".join)


def plain(text: str) -> str:
    return COLOURS.sub("", text)


def streamed(pieces: list[str], columns: int = 60) -> str:
    """Return everything that was printed if each piece is rendered."""
    answer, lines = Answer(), ""
    for piece in pieces:
        answer.add(piece)
        lines += answer.final_lines(columns)
        answer.preview(columns)
    return lines + answer.final_lines(columns, whole=True)


@pytest.mark.parametrize("text", SAMPLES)
def test_an_answer_that_came_letter_by_letter_stands_as_if_it_had_come_at_once(text: str) -> None:
    assert plain(streamed(list(text))) == plain(rendered(text, 60))


@given(MARKUP, st.integers(1, 7))
def test_whatever_the_pieces_the_same_lines_stand_there_in_the_end(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert plain(streamed(pieces)) == plain(rendered(text, 60))


VERBATIM = [
    # formulas
    r"so \(a^2 + b_1*c_2*d\) holds",
    r"\left(C,\; D\right)\!: \{x\} \| y \\ z \% \& \,",
    r"$a_1*b_2*c$ and $$x_1*y*z$$",
    r"inline \[x_1*y*z\] too",
    r"an open \[a_1, b_2",
    r"a lone \] as in [^\]]",
    "$$\n+ a_1\n- *b*\n# c\n$$",
    "\\[\n+ a_1\n= *b*\n===\n\\]",
    "\\begin{align}\n- a &= b \\\\\n\\end{align}",
    # identifiers and expressions
    "__post_init__(self), obj.__dict__, _generate_next_value_ and __name__ == '__main__'",
    "f(*args, **kwargs) and x**2 + y**2 and 2*3*4 and 5*(a+b)*c",
    "std::vector<std::string> and List<int>",
    "handlers[name](event)",
    "COUNT(*) and SUM(*)",
    "__a_] and __x__y",
    # paths and patterns
    "src/**/*.py, **/*.md, **/a/*.md and /tmp/*.log or /var/*.log",
    "Accept: */* and .*foo.*",
    r"\\server\share and C:\new",
    "cd x && \\\nls",
]


@pytest.mark.parametrize("text", VERBATIM)
def test_what_is_not_drawn_stays_as_it_was_written(text: str) -> None:
    assert plain(rendered(text, 100)).strip("\n") == text
    assert plain(streamed(list(text), 100)).strip("\n") == text


def test_links_are_readable_on_black_and_on_white() -> None:
    shown = rendered("See [the page](https://example.org/a) and <https://example.org/b>.", 100)
    colours = {code for sequence in COLOURS.findall(shown) for code in sequence[2:-1].split(";")}
    assert colours.isdisjoint({"2", "30", "34", "37", "90", "97"}), "dim, black, blue, grey and white vanish somewhere"
    assert "4" in colours


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold**, *italic*, ~~gone~~, _slanted_ and __very bold__", "bold, italic, gone, slanted and very bold"),
        ("**API**s, **.env**, **/etc/hosts**, **(x)** and a **src/**.", "APIs, .env, /etc/hosts, (x) and a src/."),
        ("你好**世界**吗，API**接口**", "你好世界吗，API接口"),
        (r"\*not bold\*, \_, \`, \<b\> and \$5", "*not bold*, _, `, <b> and $5"),
        ("1\\. one\n\\- two\n\\# three", "1. one\n- two\n# three"),
        (
            "<https://a.example/x_y> and [docs](page.md)",
            "https://a.example/x_y (https://a.example/x_y) and docs (page.md)",
        ),
        ("It costs $5 to **$6**.", "It costs $5 to $6."),
        ("__Note__ of __main__", "Note of __main__"),
        ("**Let \\(a*b*c\\) be**", "Let \\(a*b*c\\) be"),
        ("**__init__** runs", "__init__ runs"),
        ("- a\n\n  $$\n  + b\n  $$\n- c", " • a\n   $$\n   + b\n   $$\n • c"),
        ("$$\n+ b\n\n**not** closed", "$$\n+ b\n\nnot closed"),
    ],
)
def test_what_is_drawn_beside_it_is_drawn(text: str, shown: str) -> None:
    assert plain(rendered(text, 100)).rstrip("\n") == shown
    assert plain(streamed(list(text), 100)).rstrip("\n") == shown


@given(MARKUP)
def test_the_blocks_of_a_text_are_the_text(text: str) -> None:
    joined = "".join(block.text for block in split(text))
    assert joined == text or not text.strip()


@pytest.mark.parametrize("columns", [12, 20, 40, 80, 200])
@pytest.mark.parametrize("text", SAMPLES)
def test_no_word_is_lost_however_narrow_the_terminal(text: str, columns: int) -> None:
    def letters(shown: str) -> list[str]:
        return sorted(letter for letter in shown if unicodedata.category(letter)[0] in "LN")

    # Marks go; the language above code and the numbers of a list stay.
    assert letters(plain(rendered(text, columns))) == letters(text)


def test_prose_and_tables_keep_to_the_width_in_every_script() -> None:
    text = (
        "word " * 40
        + "中文字符" * 30
        + "\n\n| a | b |\n|--|--|\n| "
        + "long cell " * 9
        + "| 中文字 |\n\n- "
        + "item 🎉 " * 30
    )
    for columns in (20, 33, 60):
        assert max(wcswidth(line) for line in plain(rendered(text, columns)).splitlines()) <= columns


def test_a_table_too_wide_for_its_terminal_becomes_a_list() -> None:
    table = "| name | age | town |\n|--|--|--|\n| Ann-Katrin Longname | 33 | Neustadt an der Weinstrasse |\n"
    assert plain(rendered(table, 24)) == ("name: Ann-Katrin\nLongname\nage: 33\ntown: Neustadt an der\nWeinstrasse\n")


LONG = ["* item\n", "# a\n", "|a|b|\n|-|-|\n", "```\ncode\n```\ntext\n", "a `b` ", "- [x](y) **z** "]


@pytest.mark.parametrize("text", LONG)
def test_a_megabyte_of_markdown_takes_seconds_at_most_and_none_of_it_is_lost(text: str) -> None:
    """A model that repeats itself must not block the terminal, neither with one text nor with many pieces."""
    long = text * (1_000_000 // len(text))
    begun = time.process_time()
    assert plain(rendered(long, 60)) == long.strip("\n") + "\n"
    assert time.process_time() - begun < 2
    assert len(re.findall(r"\w+", plain(streamed([text * 40] * 60)))) >= 2_400
    assert time.process_time() - begun < 60


def test_code_that_a_lexer_takes_long_for_is_shown_without_colours() -> None:
    code = " \n" * 9_000
    begun = time.process_time()
    assert "".join(code_lines(code, "python")) == code
    assert time.process_time() - begun < 5


def test_a_megabyte_of_code_is_written_as_it_comes() -> None:
    lines = [f"line {number}\n" for number in range(80_000)]
    begun = time.process_time()
    pieces = ["".join(lines[at : at + 4_000]) for at in range(0, len(lines), 4_000)]
    shown = plain(streamed(["```python\n", *pieces, "```\nend\n"]))
    assert shown == "```python\n" + "".join(lines) + "```\n\nend\n"
    assert time.process_time() - begun < 60


def test_a_line_of_code_is_written_whole_and_without_padding() -> None:
    code = "x = 1  # " + "long " * 40
    assert plain(rendered(f"```python\n{code.strip()}\n```", 30)) == f"```python\n{code.strip()}\n```\n"


def test_code_has_the_colours_of_its_language_and_bars_are_coloured() -> None:
    assert "\x1b[" in rendered("```python\nreturn 1\n```", 60).splitlines()[1]
    assert "\x1b[32m██" in rendered("- used ██░░ 50 %", 60)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_no_text_reaches_the_terminal_with_an_escape_that_is_not_a_colour_of_ours(text: str) -> None:
    shown = plain(rendered(text, 40))
    assert shown == printable(shown)


@pytest.mark.parametrize(
    "evil", ["<http://a/%1b[2J%07>", "[x](http://a/%1b]0;t%07)", "&#x202e;&#8294;", "`\x1b[2J`", "```\x1b[2J\n\x9b2J\n```"]
)
def test_escapes_that_markdown_itself_would_decode_do_no_harm(evil: str) -> None:
    shown = plain(rendered(evil, 60))
    assert shown == printable(shown)


@settings(deadline=None, max_examples=5)
@given(st.sampled_from([">" * 3000, "[" * 3000, "*a " * 3000, "- " * 1500, "| " * 3000, "`" * 3000]))
def test_what_is_nested_without_measure_is_shown_all_the_same(text: str) -> None:
    assert rendered(text, 60)
