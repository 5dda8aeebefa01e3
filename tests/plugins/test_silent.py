"""The silent answer, in whatever pieces it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.policies.silent_reply import NO_REPLY, SilenceFilter, is_silent

_NEARLY = st.text(alphabet=st.sampled_from([*"NO_REPLY", " ", "\n", "\u2003", "x"]), max_size=12)
_ANSWERS = st.one_of(
    st.text(max_size=30),
    _NEARLY,
    st.builds(lambda before, after: before + NO_REPLY + after, st.sampled_from(["", " ", "\n\n"]), _NEARLY),
    st.builds(lambda count, after: NO_REPLY[:count] + after, st.integers(0, len(NO_REPLY)), st.text(max_size=4)),
)


@st.composite
def in_pieces(draw: st.DrawFn) -> list[str]:
    """An answer, cut at random places; pieces are never empty, as deltas are."""
    text = draw(_ANSWERS)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [piece for piece in pieces if piece]


@given(in_pieces())
def test_a_silent_reply_shows_nothing_and_any_other_its_whole_text(pieces: list[str]) -> None:
    silence, whole = SilenceFilter(), "".join(pieces)
    while_it_streams = [silence.feed(piece) for piece in pieces]
    shown = "".join([*while_it_streams, silence.end()])
    assert shown == ("" if is_silent(whole) else whole)


@given(in_pieces())
def test_text_that_cannot_become_silent_is_not_held_back(pieces: list[str]) -> None:
    silence, so_far, shown = SilenceFilter(), "", ""
    for piece in pieces:
        so_far += piece
        shown += silence.feed(piece)
        may_be_silent = NO_REPLY.startswith(so_far.lstrip()) or is_silent(so_far)
        assert shown == ("" if may_be_silent else so_far)


@pytest.mark.parametrize("answer", ["NO", "NO_", "NO_REPL", "no_reply", "NO_REPLY.", "NO_REPLY NO_REPLY", "N\nO_REPLY", ""])
def test_text_that_resembles_the_token_is_delivered(answer: str) -> None:
    silence = SilenceFilter()
    assert not is_silent(answer)
    assert "".join(map(silence.feed, answer)) + silence.end() == answer


@pytest.mark.parametrize("answer", ["NO_REPLY", " NO_REPLY\n", "\n\u3000NO_REPLY  \n\n"])
def test_white_space_around_the_token_is_ignored(answer: str) -> None:
    silence = SilenceFilter()
    assert is_silent(answer)
    assert [*map(silence.feed, answer), silence.end()] == [""] * (len(answer) + 1)
