"""The line format, which must last."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.codec import FIRST, TRAILER, InvalidLine, decode, encode, is_complete_line, verify, without_sum
from sessions.events.events import KINDS, MessageReceived, Recorded, UnknownEvent
from tests.stories import AT, lines_of, opened, received

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(text=TEXT, id_=TEXT, turn=st.none() | st.integers(1, 2**40), seq=st.integers(1, 2**50))
def test_an_encoded_event_decodes_to_the_same_event(text: str, id_: str, turn: int | None, seq: int) -> None:
    recorded = Recorded(seq=seq, at=AT, turn=turn, event=received(text, id_))
    line, digest = encode(recorded, FIRST)
    assert decode(line) == recorded
    assert verify(line, FIRST, seq) == digest
    assert is_complete_line(line)
    assert line.count(b"\n") == 1


def test_a_line_is_the_envelope_the_fields_in_order_and_the_sum() -> None:
    (line,) = lines_of([opened()])
    assert list(json.loads(line)) == ["seq", "at", "turn", "kind", "format", "session", "key", "person", "sum"]


def test_the_sum_is_blake2b_keyed_with_the_line_before() -> None:
    first, second = lines_of([opened(), received("hi")])
    keyed = hashlib.blake2b(second[:-TRAILER], digest_size=8, key=json.loads(first)["sum"].encode())
    assert json.loads(second)["sum"] == keyed.hexdigest()


def test_clients_see_a_line_without_its_sum() -> None:
    (line,) = lines_of([opened()])
    whole = json.loads(line)
    del whole["sum"]
    assert json.loads(without_sum(line)) == whole


def test_an_event_of_an_unknown_kind_survives_as_it_is() -> None:
    line = b'{"seq":1,"at":"2026-11-21T12:00:00.000Z","turn":null,"kind":"moon_landed","crew":3,"sum":"0123456789abcdef"}\n'
    assert decode(line).event == UnknownEvent(kind="moon_landed", line=line)


def test_a_field_added_by_a_later_version_is_ignored() -> None:
    (line,) = lines_of([received("hi")])
    newer = line.replace(b'"attachments":[]', b'"attachments":[],"mood":"good"')
    assert decode(newer).event == received("hi")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b'{"seq":1,"at":"2026-11-21T12:00:00.000Z","turn":null,"kind":"message_received","sum":"0123456789abcdef"}\n',
        b'{"seq":1,"at":"x","turn":null,"kind":"moon_landed","a":' + b"[" * 100_000 + b"\n",
        b'\xff{"seq":1}\n',
    ],
)
def test_an_invalid_line_is_refused_with_a_reason(line: bytes) -> None:
    with pytest.raises(InvalidLine):
        decode(line)


def test_a_flipped_bit_anywhere_is_detected() -> None:
    (line,) = lines_of([received("hello")])
    for index in range(len(line)):
        flipped = line[:index] + bytes([line[index] ^ 1]) + line[index + 1 :]
        with pytest.raises(InvalidLine):
            verify(flipped, FIRST, 1)


def test_a_line_in_another_position_is_detected() -> None:
    first, second, third = lines_of([opened(), received("a"), received("b", "m2")])
    with pytest.raises(InvalidLine, match="its seq is 3, expected 2"):
        verify(third, first[-19:-3], 2)
    with pytest.raises(InvalidLine, match="sum"):
        verify(second, FIRST, 2)


def test_every_kind_names_itself_in_the_past_tense_or_as_a_state() -> None:
    assert KINDS["message_received"] is MessageReceived
    assert all(kind == kind.lower() and "_" in kind for kind in KINDS)
