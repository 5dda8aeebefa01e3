"""Frames of clients: nothing invalid is accepted, whatever it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocol import frames
from gateway.protocol.frames import InvalidFrame, parse
from tests.stories import lines_of, received

SEND = {"type": "send", "id": "1", "session": "main", "text": "hi"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"type":"hello","protocol":1,"token":"t"}', frames.Hello(protocol=1, token="t")),
        (json.dumps(SEND), frames.Send(id="1", session="main", text="hi")),
        (
            '{"type":"subscribe","session":"main","after":0,"session_id":"20261121-120000-aaaaaa"}',
            frames.Subscribe(session="main", after=0, session_id="20261121-120000-aaaaaa"),
        ),
        ('{"type":"history","id":"h","session":"main"}', frames.History(id="h", session="main", limit=50)),
        ('{"type":"ping","newer":"field"}', frames.Ping()),
    ],
)
def test_a_frame_of_the_contract_is_read(text: str, expected: frames.ClientFrame) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"type":"nonsense"}',
        '{"type":"send","id":"1","session":"main"}',
        json.dumps({**SEND, "id": ""}),
        json.dumps({**SEND, "id": "x" * 129}),
        json.dumps({**SEND, "id": 7}),
        json.dumps({**SEND, "session": "../etc"}),
        json.dumps({**SEND, "session": "x" * 65}),
        json.dumps({**SEND, "session": "main\n"}),
        json.dumps({**SEND, "text": float("nan")}),
        '{"type":"send","id":"1","session":"main","text":NaN}',
        '{"type":"send","id":"1","session":"main","text":"\\ud800"}',
        '{"type":"send","id":"1","session":"main","text":"\ud800"}',
        '{"type":"ping","a":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"type":"subscribe","session":"main","after":-1}',
        '{"type":"subscribe","session":"main","after":1e400}',
        '{"type":"subscribe","session":"main","after":99999999999999999999999}',
        '{"type":"history","id":"h","session":"main","limit":0}',
        '{"type":"history","id":"h","session":"main","limit":501}',
    ],
)
def test_an_invalid_frame_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidFrame, match="The frame is not valid"):
        parse(text)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"session": "a b"},
            f"the name of a conversation is {frames.KEY_RULE} - at `$.session`",
        ),
        ({"attachments": [{"sha256": "x"}]}, "a SHA-256 is 64 of 0-9 and a-f - at `$.attachments[0].sha256`"),
        (
            {"type": "subscribe", "session_id": "!"},
            "a session id is one from `sessions` or `accepted` - at `$.session_id`",
        ),
    ],
)
def test_an_error_describes_a_pattern_in_words(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidFrame) as refused:
        parse(json.dumps({**SEND, **fields}))
    assert str(refused.value) == f"The frame is not valid: {sentence}"


def test_an_error_has_the_id_of_the_invalid_frame() -> None:
    with pytest.raises(InvalidFrame) as refused:
        parse('{"type":"send","id":"abc","session":"main"}')
    assert refused.value.id == "abc"


@settings(max_examples=500)
@given(
    st.text()
    | st.recursive(st.none() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)).map(
        json.dumps
    )
)
def test_any_text_is_at_most_refused(text: str) -> None:
    with pytest.raises(InvalidFrame):
        parse(text)


def test_an_event_frame_is_the_line_of_the_journal_without_its_sum() -> None:
    (line,) = lines_of([received("hi")])
    frame = json.loads(frames.event(frames.event_prefix("main", "s1"), line))
    event = json.loads(line)
    del event["sum"]
    assert frame == {"type": "event", "session": "main", "session_id": "s1", "event": event}


def test_a_history_frame_holds_its_lines_in_order() -> None:
    lines = lines_of([received("a"), received("b", "m2")])
    frame = json.loads(frames.history("h", "main", "s1", lines, more=True))
    assert [event["text"] for event in frame["events"]] == ["a", "b"]
    assert frame["more"] is True
    assert json.loads(frames.history("h", "main", "s1", [], more=False))["events"] == []
