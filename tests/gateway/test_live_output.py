"""The output of a running tool: shown as it comes, bounded, and never logged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exuvia import OutputFile, ToolFailed, ToolOutput
from gateway.conversations.turn import live_output
from gateway.conversations.turn.live_output import LiveOutput
from plugins.support import secrets
from sessions.events.events import CallRef
from tests.gateway.gateways import TOKEN, Client
from tests.gateway.working_tool import Working, working
from tests.pictures import png
from tests.waiting import deadline

REF = CallRef(of=5, index=0)


def outputs(client: Client) -> list[dict[str, Any]]:
    return [frame for frame in client.frames if frame["type"] == "output"]


async def until_shown(client: Client, text: str) -> None:
    """Wait for a piece of output that ends with a text."""
    await client.until(lambda frame: frame["type"] == "output" and frame["text"].endswith(text))


async def test_output_comes_between_the_calls_events_and_is_in_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(tmp_path, monkeypatch) as g:
        client = await g.connect()
        await client.send("go")
        Working.orders.put_nowait("one\n")
        await until_shown(client, "one\n")
        Working.orders.put_nowait("😀 two\n")
        await until_shown(client, "two\n")
        Working.orders.put_nowait(ToolOutput(text="Both pass."))
        await client.until_event("turn_ended")

        called = next(event for _, event in client.events() if event["kind"] == "tool_called")
        assert [(each["offset"], each["text"], each["turn"], each["call"]) for each in outputs(client)] == [
            (0, "one\n", 1, called["call"]),
            (4, "😀 two\n", 1, called["call"]),
        ]
        order = [frame["event"]["kind"] if frame["type"] == "event" else frame["type"] for frame in client.frames]
        assert order.index("tool_called") < order.index("output") < order.index("tool_returned")
        (lines,) = g.journals().values()
        assert "two" not in str(lines)


async def test_a_client_that_subscribes_while_a_tool_runs_is_shown_the_end_of_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_output, "KEPT_CHARACTERS", 8)
    async with working(tmp_path, monkeypatch) as g:
        client, later = await g.connect(), await g.connect()
        await client.send("go")
        Working.orders.put_nowait("one\ntwo\n")
        await until_shown(client, "two\n")
        Working.orders.put_nowait("three\n")
        await until_shown(client, "three\n")
        await later.say("subscribe", session="main", after=0)
        await until_shown(later, "three\n")
        assert [(each["offset"], each["text"]) for each in outputs(later)] == [(6, "o\nthree\n")]
        Working.orders.put_nowait(ToolOutput(text="Done."))
        await later.until_event("turn_ended")
        await client.until_event("turn_ended")


async def test_the_output_of_a_call_that_failed_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with working(tmp_path, monkeypatch) as g:
        client = await g.connect()
        await client.send("go")
        Working.orders.put_nowait("one\n")
        await until_shown(client, "one\n")
        Working.orders.put_nowait(ToolFailed("It broke."))
        returned = await client.until_event("tool_returned")
        assert (returned["outcome"], returned["output"]) == ("failed", "It broke.")
        await client.until_event("turn_ended")
        later = await g.connect()
        await later.say("subscribe", session="main", after=0)
        await later.until_event("turn_ended")
        assert outputs(later) == []


async def test_the_next_answer_is_streamed_after_the_result_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(tmp_path, monkeypatch) as g:
        client = await g.connect()
        await client.send("go")
        Working.orders.put_nowait(ToolOutput(text="Done."))
        await client.until_event("turn_ended")
    order = [frame["event"]["kind"] if frame["type"] == "event" else frame.get("reply") for frame in client.frames]
    assert 2 not in order[: order.index("tool_returned")]


async def test_what_a_tool_returns_beside_its_text_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with working(tmp_path, monkeypatch) as g:
        client = await g.connect()
        await client.send("go")
        file = OutputFile(content=png(4, 4), media="image/png", name="plot.png")
        Working.orders.put_nowait(ToolOutput(text="Drawn.", exit_code=3, diff="@@ -1 +1 @@\n-a\n+b\n", attachments=(file,)))
        returned = await client.until_event("tool_returned")
        await client.until_event("turn_ended")

        assert (returned["exit_code"], returned["diff"]) == (3, "@@ -1 +1 @@\n-a\n+b\n")
        assert returned["millis"] >= 0
        (kept,) = returned["attachments"]
        assert (kept["media"], kept["name"], kept["width"]) == ("image/png", "plot.png", 4)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with deadline(), g.http.get(f"{g.url}/attachments/{kept['sha256']}", headers=headers) as response:
            assert await response.read() == file.content


@pytest.mark.parametrize(
    "output",
    [
        ToolOutput(text=3),  # type: ignore[arg-type]
        ToolOutput(text="x", exit_code="no"),  # type: ignore[arg-type]
        ToolOutput(text="x", attachments=("picture",)),  # type: ignore[arg-type]
        ToolOutput(text="x", attachments=(OutputFile(content=b"", media=""),) * 21),
    ],
)
async def test_a_result_of_another_form_is_a_failure_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: ToolOutput
) -> None:
    async with working(tmp_path, monkeypatch) as g:
        client = await g.connect()
        await client.send("go")
        Working.orders.put_nowait(output)
        returned = await client.until_event("tool_returned")
        await client.until_event("turn_ended")
    assert returned["outcome"] == "failed"
    assert returned["output"].startswith("The tool failed: ")


# --- the output itself ------------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=20), st.integers(0, 60))
async def test_a_reader_finds_the_end_of_the_output_at_any_offset(pieces: list[str], offset: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_output, "KEPT_CHARACTERS", 10)
        patch.setattr(secrets, "_parts", ())  # the beginning of one would be held back
        output = LiveOutput(1, REF, 6, lambda: None)
        for piece in pieces:
            output.add(piece)
        start, text = output.since(offset)
    whole = "".join(pieces)
    assert output.end == len(whole)
    assert start == max(offset, len(whole) - 10, 0)
    assert text == whole[start:]
    assert output._kept <= 10 + max(map(len, pieces), default=0)


async def test_a_secret_is_hidden_wherever_the_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_parts", ("sk-12345678",))
    whole = "key=sk-12345678; sk-1 is none"
    for cut in range(len(whole)):
        output = LiveOutput(1, REF, 6, lambda: None)
        output.add(whole[:cut])
        assert not output.since(0)[1].endswith("sk-1234")
        output.add(whole[cut:])
        assert output.since(0) == (0, "key=(hidden); sk-1 is none")


@given(
    st.lists(st.text("ab", min_size=secrets.SHORTEST, max_size=24), min_size=1, max_size=4),
    st.text("abc", max_size=30),
    st.integers(1, 24),
)
@example(["aaaaaaaab"], "", 1)
@example(["aaaaaaaaabbb"], "a", 3)
def test_the_longest_beginning_of_a_secret_at_the_end_of_a_text_is_held_back(
    known: list[str], before: str, missing: int
) -> None:
    text = before + known[0][:-missing]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_parts", tuple(known))
        held = secrets.held_back(text)
    assert held == max(length for each in known for length in range(len(each)) if text.endswith(each[:length]))


async def test_output_may_come_from_a_thread_and_is_ignored_after_the_call() -> None:
    changed = asyncio.Event()
    output = LiveOutput(1, REF, 6, changed.set)
    await asyncio.to_thread(output.add, "from a thread")
    async with deadline():
        await changed.wait()
    assert output.since(0) == (0, "from a thread")
    output.close()
    output.add(" and late")
    assert output.since(0) == (0, "from a thread")
    with pytest.raises(TypeError, match="progress takes a text, not bytes"):
        output.add(b"bytes")  # type: ignore[arg-type]
