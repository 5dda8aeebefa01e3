"""Where the words of a question occur in a text, in any of their forms and in every script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.support.text.words import occurrences


def marked(text: str, question: str) -> str:
    pieces, at = [], 0
    for start, end in occurrences(text, question):
        pieces += [text[at:start], "[", text[start:end], "]"]
        at = end
    return "".join([*pieces, text[at:]])


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("which kettle is boiling?", "The [kettle] [boils] at noon. [Kettles] are loud."),
        ("pool", "In src/app/[pool].py and [pools]"),
        ("src/app/pool.py", "In [src]/[app]/[pool].[py]"),
        ("websocket", "handleWebSocket uses [web_socket]"),
        ("Haus", "Die [Häuser] sind alt, das [Haus] auch"),
        ("cafe", "[Café] crème"),
        ("绿茶", "我喜欢喝[绿茶]和咖啡"),
        ("東京", "昨日[東京]に行きました"),
        ("кошка", "Две [кошки] и [кошка]"),
        ("zebra", "No stripes here"),
        ("", "Nothing is asked"),
    ],
)
def test_words_are_found_in_all_their_forms(question: str, shown: str) -> None:
    assert marked(shown.replace("[", "").replace("]", ""), question) == shown


@given(st.text(max_size=200), st.text(max_size=50))
def test_spans_are_in_order_apart_and_inside_of_the_text(text: str, question: str) -> None:
    ends = [0]
    for start, end in occurrences(text, question):
        assert ends[-1] <= start < end <= len(text)
        ends.append(end)
