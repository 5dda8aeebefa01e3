"""Splitting Markdown: nothing is lost, every piece fits, code stays code, and it takes time proportional to the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from plugins.channels.formatting.markdown_pieces import Piece, split_markdown

PARSER = MarkdownIt("commonmark").enable("table")


def at_most(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= limit


def texts(pieces: Sequence[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


# --- documents --------------------------------------------------------------------------------------------------------

WORDS = st.text("abcdefgh", min_size=1, max_size=12)
SENTENCES = st.lists(WORDS, min_size=1, max_size=30).map(lambda words: " ".join(words) + ".")
CODE_LINES = st.lists(st.text("xyz(){}=; \t", max_size=40).map(lambda line: line.rstrip()), max_size=30)


@st.composite
def fences(draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from(["```", "~~~", "`````"]))
    return "\n".join([mark + draw(st.sampled_from(["", "py", "js x=1"])), *draw(CODE_LINES), mark])


def indented(block: str, first: str, rest: str) -> str:
    head, *tail = block.split("\n")
    return "\n".join([first + head, *(rest + line for line in tail)])


LEAVES = st.one_of(SENTENCES, fences(), SENTENCES.map("# {}".format))
BLOCKS = st.recursive(  # a list in a quotation may lose its structure where it is split, though no text
    st.one_of(LEAVES, LEAVES.map(lambda block: indented(block, "> ", "> "))),
    lambda inner: st.one_of(
        inner.map(lambda block: indented(block, "- ", "  ")),
        inner.map(lambda block: indented(block, "10. ", "    ")),
        st.lists(inner, min_size=1, max_size=4).map("\n\n".join),
    ),
    max_leaves=6,
)
DOCUMENTS = st.lists(BLOCKS, max_size=8).map("\n\n".join)


def content(markdown: str) -> tuple[str, str]:
    """Return the code of a document, and its text without white space."""
    tokens = PARSER.parse(markdown)
    code = "".join(token.content for token in tokens if token.type in ("fence", "code_block"))
    text = "".join("".join(token.content.split()) for token in tokens if token.type == "inline")
    return "\n".join(line for line in code.split("\n") if line.strip()), text


@given(DOCUMENTS, st.integers(100, 500))
@example("- a\n\n      code\n\n- b", 100)
def test_code_stays_code_and_no_text_is_lost(document: str, limit: int) -> None:
    pieces = split_markdown(document, at_most(limit))
    codes, words = zip(*map(content, texts(pieces)), strict=True) if pieces else ((), ())
    assert ("\n".join(filter(None, codes)), "".join(words)) == content(document)
    assert all(len(text) <= limit for text in texts(pieces))


@given(DOCUMENTS, st.integers(60, 500))
def test_the_pieces_after_a_crash_are_those_of_before(document: str, limit: int) -> None:
    pieces = split_markdown(document, at_most(limit))
    for number, piece in enumerate(pieces):
        assert split_markdown(document, at_most(limit), piece.end) == pieces[number + 1 :]


MARKS = st.text("ab .\n\r\t`~>-*#|[]()\\1\u0301\u200d😀。", max_size=400)


@given(st.one_of(MARKS, st.text(max_size=400)), st.integers(1, 120))
def test_no_character_of_any_text_is_lost_and_the_pieces_end_in_order(text: str, limit: int) -> None:
    pieces = split_markdown(text, at_most(limit))
    begin = 0
    for piece in pieces:
        assert piece.end > begin
        shown = iter(piece.text)
        assert all(character in shown for character in "".join(text[begin : piece.end].split()))
        begin = piece.end
    assert not text[begin:].strip(" \t\r\n")


@given(MARKS, st.integers(100, 300))
def test_every_piece_of_any_text_fits(text: str, limit: int) -> None:
    assert all(len(piece.text) <= limit for piece in split_markdown(text, at_most(limit)))


# --- where it is split ------------------------------------------------------------------------------------------------


def test_a_text_that_fits_is_one_piece() -> None:
    assert split_markdown("# A\n\nb", at_most(10)) == [Piece("# A\n\nb", 6)]
    assert split_markdown("", at_most(10)) == split_markdown(" \n\n", at_most(10)) == []


def test_it_is_split_between_blocks_and_not_after_a_heading() -> None:
    text = "One sentence. Another one.\n\nA paragraph of its own.\n\n# A heading\n\nThe text below it."
    assert texts(split_markdown(text, at_most(75))) == [
        "One sentence. Another one.\n\nA paragraph of its own.",
        "# A heading\n\nThe text below it.",
    ]


def test_a_paragraph_is_split_between_sentences_else_between_words_else_anywhere() -> None:
    assert texts(split_markdown("First one. Second one. Third one.", at_most(24))) == [
        "First one. Second one.",
        "Third one.",
    ]
    assert texts(split_markdown("no end of words in here", at_most(10))) == ["no end of", "words in", "here"]
    assert texts(split_markdown("eins。zwei。drei。", at_most(11))) == ["eins。zwei。", "drei。"]
    assert texts(split_markdown("x" * 25, at_most(10))) == ["x" * 10, "x" * 10, "x" * 5]
    assert texts(split_markdown("👩\u200d🚀" * 2 + "e\u0301", at_most(4))) == ["👩\u200d🚀", "👩\u200d🚀", "e\u0301"]


def test_code_that_fits_a_post_is_not_split() -> None:
    text = "A short word.\n\n```py\none()\ntwo()\nthree()\n```\n\nAfterwards."
    assert texts(split_markdown(text, at_most(40))) == ["A short word.", "```py\none()\ntwo()\nthree()\n```", "Afterwards."]


@pytest.mark.parametrize(
    ("before", "within"), [("", ""), ("- ", "  "), ("10. - ", "      "), ("> ", "> "), ("- > - ", "  >   ")]
)
def test_code_that_is_too_long_is_closed_and_opened_again(before: str, within: str) -> None:
    lines = "\n".join(f"{within}line{number}()" for number in range(6))
    text = f"{before}~~~js\n{lines}\n{within}~~~\n\nThat is all."
    first, *later = [each for each in texts(split_markdown(text, at_most(54))) if each != "That is all."]
    assert first.startswith(f"{before}~~~js\n{within}line0()\n")
    assert first.endswith(f"\n{within}~~~")
    assert later
    assert all(each.startswith("~~~js\nline") and each.removesuffix("\n\nThat is all.").endswith("~~~") for each in later)
    assert "\n".join(content(each)[0] for each in (first, *later)) == content(text)[0]


def test_the_header_of_a_table_is_repeated() -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n"
    assert texts(split_markdown(text, at_most(42))) == [
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        "| a | b |\n|---|---|\n| 5 | 6 |",
    ]


def test_a_long_language_or_header_is_not_repeated() -> None:
    text = "```" + "x" * 90 + "\n" + "line\n" * 60 + "```"
    assert all(len(each) <= 100 for each in texts(split_markdown(text, at_most(100))))
    table = f"|{'a' * 500}|\n|---|\n" + "| row |\n" * 200
    assert all(len(each) <= 600 for each in texts(split_markdown(table, at_most(600))))


# --- what it costs ----------------------------------------------------------------------------------------------------

ODD = {
    "words": "Some words. ",
    "quotation": ">",
    "items": "- ",
    "cells": "|",
    "rows": "|x|y|\n",
    "brackets": "[",
    "fences": "```\n",
    "line feeds": "\n",
    "spaces": " ",
    "html": "<div>\n",
    "references": "[a]: b\n",
    "headings": "a\n=\n",
    "marks": "e\u0301",
}


@pytest.mark.parametrize("unit", ODD.values(), ids=ODD)
@pytest.mark.parametrize("before", ["", "```\n", "|a|b|\n|-|-|\n"], ids=["plain", "code", "table"])
def test_the_work_is_proportional_to_the_text(before: str, unit: str) -> None:
    def work(characters: int) -> int:
        tried = 0

        def fits(text: str) -> bool:
            nonlocal tried
            tried += len(text)
            return len(text) <= 2000

        pieces = split_markdown(before + unit * (characters // len(unit)), fits)
        assert len(pieces) <= characters / 500 + 1
        return tried

    assert work(30_000) <= 40 * 30_000
    assert work(120_000) <= 5 * max(work(30_000), 30_000)


def test_a_channel_that_nothing_fits_gets_the_whole_text() -> None:
    assert split_markdown("a b c", lambda _: False) == [Piece("a b c", 5)]
