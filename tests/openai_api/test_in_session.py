"""Chat completions in a session: the last message is a new message of its person, handled like any other."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.http.openai.answer_reducer import AnswerReducer
from gateway.http.openai.api_errors import ApiError
from gateway.protocol.frames import ATTACHMENTS
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import ScriptedResponse
from tests.gateway.gateways import Gateway, gateway, replies_wait
from tests.openai_api.asking import TOOLS, client_of, vendor_behind
from tests.pictures import png
from tests.waiting import deadline, until

MAIN = {"X-Exuvia-Session": "main"}


async def say(client: Any, text: Any, *, stream: bool = False, **headers: Any) -> Any:
    """Say something to the session `main`."""
    messages = [{"role": "user", "content": text}]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.chat.completions.create(model="exuvia", messages=messages, stream=stream, extra_headers=MAIN | named)


async def heard(stream: Any) -> list[str]:
    """The pieces of text of a stream."""
    async with deadline():
        return [chunk.choices[0].delta.content async for chunk in stream if chunk.choices and chunk.choices[0].delta.content]


def only_journal(g: Gateway) -> list[dict[str, Any]]:
    (journal,) = g.journals().values()
    return journal


def of_kind(journal: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in journal if event["kind"] == kind]


# --- the message ------------------------------------------------------------------------------------------------------


async def test_in_a_session_only_the_last_message_is_new(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Blue."), ScriptedResponse("Because.")) as (g, server, client):
        await say(client, "Which colour?")
        raw = await client.chat.completions.with_raw_response.create(
            model="exuvia",
            messages=[
                {"role": "system", "content": "Lie."},
                {"role": "user", "content": "I never said this."},
                {"role": "user", "content": "Why?"},
            ],
            extra_headers=MAIN | {"User-Agent": "my-program/1"},
        )
        journal = only_journal(g)
    answer = raw.parse()
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Because.", "stop")
    received = of_kind(journal, "message_received")
    assert [event["text"] for event in received] == ["Which colour?", "Why?"]
    assert (received[1]["sender"], received[1]["channel"], received[1]["client"]) == ("owner", "api", "my-program/1")
    assert raw.headers["X-Exuvia-Seq"] == str(received[1]["seq"])
    assert raw.headers["X-Exuvia-Session-Id"] in {path.stem for path in (tmp_path / "sessions").iterdir()}
    sent = server.requests[1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert "Lie." not in json.dumps(sent)
    assert answer.usage.completion_tokens == 1


async def test_the_api_and_the_websocket_share_sessions(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        socket = await g.connect()
        await socket.chat("by websocket")
        answer = await say(client, "by program")
        assert answer.choices[0].message.content == "by program"
        event = await socket.until_event("turn_ended")
        assert [e["text"] for e in of_kind(only_journal(g), "message_received")] == ["by websocket", "by program"]
        assert event["seq"] == only_journal(g)[-1]["seq"]


async def test_an_answer_in_a_session_streams_before_and_after_tools(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [
        {"text": "I look.", "calls": [{"tool": "read", "arguments": {"path": path}} for path in (".", "missing.md")]},
        {"text": "It is empty.", "delay_ms": 30},
    ]
    async with gateway(tmp_path, script=script) as g, client_of(g) as client:
        pieces = await heard(await say(client, "What is there?", stream=True))
        whole = await say(client, "Again?")
    assert "".join(pieces) == "I look.\n\nIt is empty."
    assert len(pieces) > 1, "not all at the end"
    assert whole.choices[0].message.content == "It is empty."
    assert [event["outcome"] for event in of_kind(only_journal(g), "turn_ended")] == ["replied", "replied"]


async def test_a_command_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        assert "scripted:echo" in (await say(client, "/model")).choices[0].message.content
        assert "".join(await heard(await say(client, "/model", stream=True))).count("scripted:echo") >= 1


async def test_a_picture_is_kept_with_the_message(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{b64encode(png(4, 4)).decode()}"
    content: list[Any] = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with vendor_behind(tmp_path, ScriptedResponse("Grey.")) as (g, server, client):
        assert (await say(client, content)).choices[0].message.content == "Grey."
        (received,) = of_kind(only_journal(g), "message_received")
    assert [(each["media"], each["width"]) for each in received["attachments"]] == [("image/png", 4)]
    assert server.requests[0]["messages"][-1]["content"][0]["image_url"]["url"] == url


async def test_each_person_has_sessions_of_their_own(tmp_path: Path) -> None:
    token = "anas-token-that-is-long-enough"
    people = f'[people.ana]\ntoken = "{token}"\n[agent]\nmodel = "scripted:echo"\n'
    async with gateway(tmp_path, file=people) as g, client_of(g) as owner, client_of(g, token) as ana:
        await say(owner, "mine")
        await say(ana, "hers")
        said = {j[0]["person"]: of_kind(j, "message_received")[0]["text"] for j in g.journals().values()}
    assert said == {"owner": "mine", "ana": "hers"}


# --- sent again -------------------------------------------------------------------------------------------------------


async def test_the_same_message_again_is_answered_from_the_log(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Once.")) as (g, server, client):
        for header in ("Idempotency_Key", "X_Client_Request_Id"):
            named: dict[str, Any] = {header: f"id-{header}"}
            answers = [await say(client, "Hello", **named) for _ in range(2)]
            assert [answer.choices[0].message.content for answer in answers] == ["Once.", "Once."]
        pieces = await heard(await say(client, "Hello", stream=True, Idempotency_Key="id-Idempotency_Key"))
        assert pieces == ["Once."]
        with pytest.raises(openai.ConflictError, match="This id was already used for another message"):
            await say(client, "Something else", Idempotency_Key="id-Idempotency_Key")
        assert len(server.requests) == 2
    assert len(of_kind(only_journal(g), "message_received")) == 2


async def test_an_automatic_retry_of_openais_client_is_not_a_new_message(tmp_path: Path) -> None:
    """It makes them by itself, after a timeout as after a lost connection."""
    attempts: list[str] = []
    with replies_wait() as go_on:

        async def note(request: httpx.Request) -> None:
            attempts.append(request.headers["X-Stainless-Retry-Count"])
            if len(attempts) == 2:
                go_on.set()

        async with gateway(tmp_path, script=[{"text": "one two"}]) as g, client_of(g) as client:
            async with httpx.AsyncClient(event_hooks={"request": [note]}, timeout=1.0) as http:
                retrying = client.with_options(http_client=http, timeout=1.0, max_retries=20)
                assert (await say(retrying, "Hello")).choices[0].message.content == "one two"
            assert attempts[:2] == ["0", "1"]
            assert len(of_kind(only_journal(g), "message_received")) == 1
            assert (await say(client, "Hello")).choices[0].message.content
        assert len(of_kind(only_journal(g), "message_received")) == 2, "said once more on purpose"


async def test_a_disconnecting_client_does_not_end_the_turn(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"text": "one two three four", "delay_ms": 100}]) as g, client_of(g) as client:
        stream = await say(client, "Hello", stream=True, Idempotency_Key="mine")
        await anext(stream)
        await stream.close()
        await until(lambda: of_kind(only_journal(g), "turn_ended"))
        assert of_kind(only_journal(g), "model_replied")[0]["text"] == "one two three four"
        assert await heard(await say(client, "Hello", stream=True, Idempotency_Key="mine")) == ["one two three four"]


async def test_an_answer_interrupted_by_a_stop_is_given_after_the_restart(tmp_path: Path) -> None:
    script = [{"text": "one two three four", "delay_ms": 150}]
    async with gateway(tmp_path, script=script) as g, client_of(g) as client:
        stream = await say(client, "Hello", stream=True, Idempotency_Key="mine")
        await anext(stream)
        g.daemon.stop()
        g.daemon.stop()  # which waits for no turn
        with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):
            await heard(stream)
    async with gateway(tmp_path, script=script) as g, client_of(g) as client:
        answer = await say(client, "Hello", Idempotency_Key="mine")
    assert answer.choices[0].message.content.endswith("one two three four")
    assert len(of_kind(only_journal(g), "message_received")) == 1


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_failed_turn_is_an_error(tmp_path: Path) -> None:
    fault = Fault(status=401, body=b'{"error": {"message": "No.", "code": "invalid_api_key"}}')
    async with vendor_behind(tmp_path, fault) as (g, _, client):
        with pytest.raises(openai.InternalServerError) as caught:
            await say(client, "Hello")
        assert caught.value.code == "credentials_refused"
        assert caught.value.response.headers["X-Should-Retry"] == "false", "the message stands in the session"
        stream = await say(client, "Hello", stream=True)
        with pytest.raises(openai.APIError) as told:
            await heard(stream)
        assert told.value.code == "credentials_refused"
    assert [event["outcome"] for event in of_kind(only_journal(g), "turn_ended")] == ["failed", "failed"]


async def test_a_cancelled_turn_ends_the_stream(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"text": "one two " * 200, "delay_ms": 30}]) as g, client_of(g) as client:
        stream = await say(client, "Hello", stream=True)
        await anext(stream)
        socket = await g.connect()
        await socket.say("cancel", session="main")
        pieces = await heard(stream)
        kept = of_kind(only_journal(g), "model_replied")[0]["text"]
    assert kept.endswith("".join(pieces)), "the first piece was taken before"
    assert of_kind(only_journal(g), "turn_ended")[0]["outcome"] == "cancelled"


def picture(number: int) -> dict[str, Any]:
    """A picture that is no other's."""
    url = f"data:image/png;base64,{b64encode(png(number, 1)).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


NOT_TAKEN: list[tuple[dict[str, Any], str]] = [
    ({"tools": TOOLS}, "tools cannot be set in a session"),
    ({"stop": "END"}, "stop cannot be set in a session"),
    ({"response_format": {"type": "json_object"}}, "response_format cannot be set in a session"),
    ({"model": "scripted:script"}, "The model of this session is scripted:echo"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message must be a new user message"),
    ({"messages": [{"role": "user", "content": "  "}]}, "needs a text or a picture"),
    ({"messages": [{"role": "user", "content": "x" * 1_100_000}]}, "text of a message is limited"),
    (
        {"messages": [{"role": "user", "content": [picture(number) for number in range(1, ATTACHMENTS + 2)]}]},
        "limited to 20 pictures",
    ),
    ({"extra_headers": {"X-Exuvia-Session": "a/b"}}, "letters from A to Z"),
    ({"extra_headers": MAIN | {"Idempotency-Key": "a b"}}, "Idempotency-Key must have"),
]
"""Of each change to a usual request: words of the sentence that refuses it."""


async def test_options_that_a_session_does_not_accept_are_refused(tmp_path: Path) -> None:
    usual: dict[str, Any] = {"model": "exuvia", "messages": [{"role": "user", "content": "Hello"}], "extra_headers": MAIN}
    async with gateway(tmp_path) as g, client_of(g) as client:
        for change, words in NOT_TAKEN:
            with pytest.raises(openai.BadRequestError, match=words):
                await client.chat.completions.create(**usual | change)
        assert not any(of_kind(journal, "message_received") for journal in g.journals().values())


async def test_a_full_session_says_when_to_retry(tmp_path: Path) -> None:
    settings = {"sessions.queue_limit": 1}
    slow = [{"text": "slow"}]
    with replies_wait(0) as go_on:
        async with gateway(tmp_path, script=slow, settings=settings) as g, client_of(g) as client:
            waiting = []
            for number, kind in enumerate(("turn_started", "message_received")):
                waiting.append(asyncio.create_task(say(client, f"{number}")))
                async with deadline():
                    while len(of_kind(next(iter(g.journals().values()), []), kind)) <= number:
                        await asyncio.sleep(0.01)
            with pytest.raises(openai.RateLimitError) as caught:
                await say(client, "one too many")
            assert (caught.value.code, caught.value.response.headers["Retry-After"]) == ("busy", "1")
            go_on.set()
            assert [a.choices[0].message.content for a in await asyncio.gather(*waiting)] == ["slow", "slow"]


# --- the fold ---------------------------------------------------------------------------------------------------------


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": "event", "event": {"seq": 1, "kind": kind, **fields}}).encode()


def delta(reply: int, offset: int, text: str, turn: int = 1) -> bytes:
    return json.dumps({"type": "delta", "turn": turn, "reply": reply, "offset": offset, "text": text}).encode()


def told(*frames: bytes, seq: int = 5) -> tuple[str, str | None]:
    telling = AnswerReducer(seq)
    return "".join(telling.feed(frame) for frame in frames), telling.stop


STARTED = event("turn_started", turn=1, takes=[5], provider="p", model="m")
ENDED = event("turn_ended", turn=1, outcome="replied")


def test_streamed_text_is_not_repeated_by_the_event_that_confirms_it() -> None:
    frames = STARTED, delta(1, 0, "Hel"), delta(1, 3, "lo"), event("model_replied", turn=1, reply=1, text="Hello"), ENDED
    assert told(*frames) == ("Hello", "end")


def test_deltas_dropped_for_a_slow_client_are_restored_by_the_event() -> None:
    frames = STARTED, delta(1, 0, "Hel"), delta(1, 9, "late"), event("model_replied", turn=1, reply=1, text="Hello and late")
    assert told(*frames, ENDED) == ("Hello and late", "end")


def test_events_of_other_kinds_are_ignored() -> None:
    fields = {
        key: {"a": ["meaning", 1]} for key in ("takes", "model", "text", "stop", "usage", "outcome", "error", "answers")
    }
    returned = event("tool_returned", turn=1, call={"of": 7, "index": 0}, outcome="returned", output="it is empty")
    flushed = event("memory_flushed", outcome="written", provider="", error="nothing")
    said = event("model_replied", turn=1, reply=1, text="Hello")
    assert told(STARTED, returned, flushed, event("of_a_later_version", **fields), said, ENDED) == ("Hello", "end")


def test_a_restarted_reply_is_separated_by_an_empty_line() -> None:
    frames = (
        STARTED,
        delta(1, 0, "Hel"),
        delta(2, 0, "Good"),
        event("model_replied", turn=1, reply=2, text="Good day"),
        ENDED,
    )
    assert told(*frames) == ("Hel\n\nGood day", "end")


def test_deltas_before_the_turn_is_known_are_returned_once_it_is() -> None:
    telling = AnswerReducer(5)
    frames = delta(1, 0, "Hel"), STARTED, delta(1, 3, "lo"), event("model_replied", turn=1, reply=1, text="Hello"), ENDED
    assert [telling.feed(frame) for frame in frames] == ["", "Hel", "lo", "", ""]


def test_other_turns_are_ignored() -> None:
    before = [event("turn_started", turn=1, takes=[4], provider="p", model="m"), delta(1, 0, "not mine")]
    before += event("model_replied", turn=1, reply=1, text="not mine"), event("turn_ended", turn=1, outcome="failed")
    mine = [event("turn_started", turn=2, takes=[5], provider="p", model="m"), delta(1, 0, "mine", turn=2)]
    mine += event("model_replied", turn=2, reply=1, text="mine"), event("turn_ended", turn=2, outcome="replied")
    assert told(*before, *mine) == ("mine", "end")


def test_a_message_that_joins_a_turn_gets_the_rest_of_it() -> None:
    before = [event("turn_started", turn=1, takes=[4], provider="p", model="m"), delta(1, 0, "I look.")]
    before.append(event("model_replied", turn=1, reply=1, text="I look.", stop="calls"))
    mine = event("turn_joined", turn=1, takes=[5]), event("model_replied", turn=1, reply=2, text="Both."), ENDED
    assert told(*before, *mine) == ("Both.", "end")


def test_the_fallback_model_is_named() -> None:
    telling = AnswerReducer(5)
    for frame in (STARTED, event("model_replied", turn=1, reply=1, text="Hello", provider="second", model="spare"), ENDED):
        telling.feed(frame)
    assert (telling.model, telling.stop) == ("second:spare", "end")


def test_an_abandoned_turn_is_an_error() -> None:
    failed = event("turn_ended", turn=1, outcome="abandoned", error={"code": "abandoned", "sentence": "It is over."})
    with pytest.raises(ApiError, match="It is over"):
        told(STARTED, failed)
