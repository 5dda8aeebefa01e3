"""Markdown as a text of Telegram with entities."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.channels.telegram.telegram_entities import FormattedText, format_markdown, utf16_units
from tests.servers.telegram_rules import Parameters, checked_text


def shown(formatted: FormattedText) -> list[tuple[str, str]]:
    """Return the type of each entity (with its language or address) and the text that it marks."""
    units = formatted.text.encode("utf-16-le")
    return [
        (
            each.type + (each.language or each.url),
            units[2 * each.offset : 2 * (each.offset + each.length)].decode("utf-16-le"),
        )
        for each in formatted.entities
    ]


def accepted(formatted: FormattedText) -> None:
    """Check a text by the rules of the Bot API."""
    checked_text(
        Parameters({"text": formatted.text, "entities": msgspec.json.encode(formatted.entities).decode()}, {}), most=10**6
    )


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("**bold *both* end**", "bold both end", [("bold", "bold both end"), ("italic", "both")]),
        ("~~gone~~ and ||secret||", "gone and secret", [("strikethrough", "gone"), ("spoiler", "secret")]),
        ("# Tea\nIt is hot.", "Tea\n\nIt is hot.", [("bold", "Tea")]),
        ("😀 **tea** 😀", "😀 tea 😀", [("bold", "tea")]),
        ("**use `x` now**", "use x now", [("bold", "use "), ("code", "x"), ("bold", "now")]),
        ("```python\nif x:\n    y\n```", "if x:\n    y", [("prepython", "if x:\n    y")]),
        ("a\n\n```\n```\nb", "a\n\nb", []),
        ("```\n  x\n```", "  x", [("pre", "  x")]),
        ("> one\n> **two**\n\nthree", "one\ntwo\n\nthree", [("blockquote", "one\ntwo"), ("bold", "two")]),
        ("> a\n>> b", "a\n\n│ b", [("blockquote", "a\n\n│ b")]),
        ("- a\nlazy\n- b\n  1. c\n  2. d", "• a\n  lazy\n• b\n  1. c\n  2. d", []),
        ("3. a\n4. b\n\nend", "3. a\n4. b\n\nend", []),
        ("a\n\n---\nb", "a\n\n———\n\nb", []),
        ("[docs](https://e.org/a)", "docs", [("text_linkhttps://e.org/a", "docs")]),
        ("<https://e.org>", "https://e.org", []),
        ("[https://bank.com](https://evil.org)", "https://bank.com (https://evil.org)", []),
        ("[www.e.org/x](https://e.org/x)", "www.e.org/x", [("text_linkhttps://e.org/x", "www.e.org/x")]),
        ("[Ana](tg://user?id=1)", "Ana (tg://user?id=1)", []),
        ("[x](javascript:alert)", "[x](javascript:alert)", []),
        ("![cat](https://e.org/c.png)", "cat", [("text_linkhttps://e.org/c.png", "cat")]),
        ("<b>not</b> &lt;i&gt;", "<b>not</b> <i>", []),
        ("a\x00\u202eb\x1b[31m", "ab[31m", []),
        ("a | b || c", "a | b || c", []),
        ("| a | bb |\n|---|---|\n| 中 | `x` |", "a  │ bb\n───┼───\n中 │ x", [("pre", "a  │ bb\n───┼───\n中 │ x")]),
        ("", "", []),
        ("***", "———", []),
    ],
)
def test_markdown_becomes_entities(markdown: str, text: str, entities: list[tuple[str, str]]) -> None:
    formatted = format_markdown(markdown)
    assert (formatted.text, shown(formatted)) == (text, entities)
    accepted(formatted)


PIECES = st.sampled_from(
    [
        *(
            "a",
            "😀",
            " ",
            "  ",
            "\n",
            "\n\n",
            "*",
            "**",
            "_",
            "~~",
            "||",
            "|",
            "`",
            "```",
            "```py\n",
            "> ",
            "- ",
            "1. ",
            "# ",
        ),
        *(
            "[x](http://e.org)",
            "[",
            "](",
            ")",
            "![p](http://p)",
            "<b>",
            "&amp;",
            "\\",
            "---\n",
            "\t",
            "\u202e",
            "é",
            "\ud800",
        ),
        "| a | b |\n|---|---|\n| 1 | **2** |\n",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200))
def test_any_text_becomes_what_telegram_accepts(text: str) -> None:
    accepted(format_markdown(text))


def test_no_word_is_lost() -> None:
    words = [f"word{number}" for number in range(40)]
    text = "\n".join(
        [f"# {words[0]}", *(f"- **{word}** `{word}c`" for word in words), f"> {words[1]}q", "```", *words, "```"]
    )
    formatted = format_markdown(text)
    assert all(word in formatted.text and f"{word}c" in formatted.text for word in words)
    accepted(formatted)


def test_length_is_counted_in_utf_16_units() -> None:
    assert utf16_units("😀é") == 3
    assert format_markdown("😀" * 2048).fits
    assert not format_markdown("😀" * 2049).fits
    assert not format_markdown("**a** " * 101).fits  # the service would ignore the last ones


def test_hostile_texts_are_formatted_in_linear_time() -> None:
    began = time.process_time()
    for text in ("||" * 8000, "*a " * 5000, "[" * 16000, "> " * 4000, "| a " * 4000, "- " * 4000, "`" * 16000, "||a" * 5000):
        accepted(FormattedText(format_markdown(text).text))
    assert time.process_time() - began < 10
