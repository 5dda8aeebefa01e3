"""Markdown as Slack's blocks of rich text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.channel import Choice
from plugins.channels.slack.slack_blocks import MOST_BLOCKS, MOST_BYTES, blocks_of, buttons_of, escaped, fits, plain_text
from tests.servers.slack_blocks import check_blocks


def elements(text: str) -> list[dict[str, Any]]:
    """The elements of a text that is one block."""
    (block,) = blocks_of(text)
    assert block["type"] == "rich_text"
    found: list[dict[str, Any]] = block["elements"]
    return found


def section(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text_section", "elements": list(parts)}


def text(content: str, *styles: str) -> dict[str, Any]:
    return {"type": "text", "text": content} | ({"style": dict.fromkeys(styles, True)} if styles else {})


def link(url: str, label: str) -> dict[str, Any]:
    return {"type": "link", "url": url, "text": label}


def test_styles_may_be_nested() -> None:
    assert elements("a **b *c*** ~~d~~ `e`") == [
        section(text("a "), text("b ", "bold"), text("c", "bold", "italic"), text(" "), text("d", "strike"), text(" "),
                text("e", "code")),
    ]  # fmt: skip


def test_paragraphs_and_headings_are_one_section() -> None:
    assert elements("# Tea\n\nIs\nthere?\n\nNo.") == [section(text("Tea", "bold"), text("\n\nIs\nthere?\n\nNo."))]


def test_lists_are_nested_and_numbered_on() -> None:
    assert elements("3. a\n   - b\n4. c") == [
        {"type": "rich_text_list", "style": "ordered", "indent": 0, "offset": 2, "elements": [section(text("a"))]},
        {"type": "rich_text_list", "style": "bullet", "indent": 1, "elements": [section(text("b"))]},
        {"type": "rich_text_list", "style": "ordered", "indent": 0, "offset": 3, "elements": [section(text("c"))]},
    ]


def test_code_quotes_and_rules_have_their_form() -> None:
    assert blocks_of("```python\nx = '<!here>'\n```\n> q\n\n---\nend") == [
        {"type": "rich_text", "elements": [
            {"type": "rich_text_preformatted", "elements": [text("x = '<!here>'")]},
            {"type": "rich_text_quote", "elements": [text("q")]},
        ]},
        {"type": "divider"},
        {"type": "rich_text", "elements": [section(text("end"))]},
    ]  # fmt: skip


def test_a_table_is_aligned_also_with_wide_characters() -> None:
    (table,) = elements("| tea | n |\n|---|---|\n| 茶 | 12 |")
    assert table["elements"] == [text("tea | n \n----+---\n茶  | 12")]


def test_addresses_become_links_without_the_sentence_around_them() -> None:
    assert elements("See https://a.example/x_(y)?q=1&r=2.") == [
        section(text("See "), link("https://a.example/x_(y)?q=1&r=2", "https://a.example/x_(y)?q=1&r=2"), text(".")),
    ]


@pytest.mark.parametrize("label", ["https://bank.example", "bank.example", "www.bank.example/login", "bank.example/a"])
def test_a_label_that_looks_like_another_address_is_followed_by_the_true_one(label: str) -> None:
    assert elements(f"[{label}](https://evil.example/)") == [
        section(text(f"{label} ("), link("https://evil.example/", "https://evil.example/"), text(")")),
    ]


def test_other_labels_are_links_and_other_schemes_are_text() -> None:
    assert elements("[Tea](https://a.example/)") == [section(link("https://a.example/", "Tea"))]
    assert elements("[Tea](slack://open)") == [section(text("Tea (slack://open)"))]


def test_mentions_and_markup_of_slack_remain_text() -> None:
    hostile = "<!channel> <@U1> <!subteam^S1|x> & @here :tada: <mailto:a@b.example|c>"
    assert plain_text(blocks_of(hostile)).startswith("<!channel> <@U1> <!subteam^S1|x> & @here :tada: ")
    assert {part["type"] for part in elements(hostile)[0]["elements"]} <= {"text", "link"}
    assert escaped("<!here> & <@U1>") == "&lt;!here&gt; &amp; &lt;@U1&gt;"


def test_characters_that_turn_or_hide_text_are_left_out() -> None:
    assert elements("a\u202eb\u2066c\x1b[31md") == [section(text("abc[31md"))]


def test_html_is_text() -> None:
    assert elements("<b>x</b>\n\n<script>y</script>") == [section(text("<b>x</b>\n\n<script>y</script>"))]


def test_buttons_are_in_rows_of_25_with_short_labels() -> None:
    rows = buttons_of([Choice(id=f"/approve {n}", label="x" * 100) for n in range(30)])
    assert [len(row["elements"]) for row in rows] == [25, 5]
    check_blocks(rows)
    assert rows[1]["elements"][4]["value"] == "/approve 29"


@pytest.mark.parametrize(
    ("long", "allowed"), [("x" * 11_000, True), ("x" * 12_001, False), ("茶" * 5_000, False), ("- a\n" * 1_000, False)]
)
def test_what_fits_is_what_slack_takes(long: str, allowed: bool) -> None:
    assert fits(long) is allowed


@given(st.text(st.sampled_from("ab*_~`#->|[](!)\n \t1.<&:/x茶\u202e\x00"), max_size=200))
def test_slack_takes_the_blocks_of_any_text(source: str) -> None:
    if fits(source):
        check_blocks(blocks_of(source))
    else:
        assert len(blocks_of(source)) > MOST_BLOCKS or len(json.dumps(blocks_of(source))) > MOST_BYTES


@given(st.text(st.sampled_from("ab <>&*"), max_size=100))
def test_nothing_of_plain_words_is_lost(source: str) -> None:
    shown = plain_text(blocks_of(source))
    assert [c for c in shown if c.isalpha()] == [c for c in source if c.isalpha()]
