"""The search for many texts at once finds all that a search for each of them finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.conversations.erasure.text_scrubbing import FEW, TextScrubber

TEXTS = st.lists(st.text("ab é", min_size=12, max_size=150), min_size=FEW + 1, max_size=FEW * 3)


@given(texts=TEXTS, chosen=st.integers(0, FEW), before=st.text("ab é", max_size=100), after=st.text("ab é", max_size=100))
def test_a_text_is_found_at_any_place_of_a_line(texts: list[str], chosen: int, before: str, after: str) -> None:
    scrubber = TextScrubber(texts)
    line = f'{{"text":"{before}{texts[chosen].strip()}{after}"}}\n'.encode()
    assert scrubber.is_in(line) == any(text.encode() in line for text in scrubber.texts)


def test_only_a_line_that_may_have_a_text_is_searched_for_each_of_them() -> None:
    texts = [f"{number} words about crabs and their shells" for number in range(FEW + 1)]
    scrubber = TextScrubber(texts)
    assert scrubber._sample is not None
    assert not scrubber._sample.may_have(b'{"text":"something else altogether, as long as you like"}\n' * 10)
    assert all(scrubber.is_in(b" " * shift + texts[3].encode() + b" " * 100) for shift in range(100))
