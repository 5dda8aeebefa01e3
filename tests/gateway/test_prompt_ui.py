"""`exuvia chat` at a terminal with colours: what is shown while a person types, and what remains."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from exuvia import ToolOutput
from tests.gateway.cutting_proxy import CuttingProxy
from tests.gateway.gateways import Gateway, gateway, replies_wait
from tests.gateway.person import ENVIRONMENT, Terminal
from tests.gateway.test_chat_terminal import received
from tests.gateway.working_tool import Working, working
from tests.waiting import DEADLINE, until

ENTER, ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, CTRL_O, TAB, UP = "\r", "\x1b\r", "\x03", "\x04", "\n", "\x0f", "\t", "\x1b[A"
PASTE = "\x1b[200~{}\x1b[201~"


def environment(tmp_path: Path) -> Mapping[str, str]:
    wanted = {"TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path / "state")}
    return {name: value for name, value in ENVIRONMENT.items() if name != "NO_COLOR"} | wanted  # it may be set here


@asynccontextmanager
async def prompt_ui(
    tmp_path: Path, *script: Mapping[str, Any], columns: int = 80, rows: int = 24, stop_within: str = "10s"
) -> AsyncIterator[tuple[Gateway, Terminal]]:
    """Run a gateway and a person at the prompt, who leaves in the end and finds the terminal restored."""
    async with (
        gateway(tmp_path, script=script or None, settings={"gateway.stop_within": stop_within}) as g,
        Terminal(columns, rows) as terminal,
    ):
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("Ctrl-D leaves.")
        await terminal.sees("› ")
        yield g, terminal
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        assert terminal.echoes


async def test_an_answer_is_shown_with_its_markdown_and_stays_in_the_scrollback(tmp_path: Path) -> None:
    text = "# Title\n\n- one\n- **two**\n\n```python\nreturn 1\n```\n\nend"
    async with prompt_ui(tmp_path, {"text": text, "delay_ms": 30}) as (_, terminal):
        terminal.types("show me" + ENTER)
        await terminal.sees("› show me\n")
        await terminal.sees("Title\n\n • one\n • two\n")
        await terminal.sees("```python\nreturn 1\n```\n")
        await terminal.sees("\nend\n")
        assert terminal.shown.count("return 1") == terminal.shown.count("Title") == 1


@pytest.mark.parametrize("no_color", ["1", ""])
async def test_no_color_leaves_the_prompt_and_takes_only_its_colours(no_color: str, tmp_path: Path) -> None:
    text = "# Title\n\n- one\n- **two**\n\n```python\nreturn 1\n```\n\n█░"
    async with gateway(tmp_path, script=[{"text": text, "delay_ms": 30}]) as g, Terminal() as terminal:
        process = await terminal.chat(g.url, environment={**environment(tmp_path), "NO_COLOR": no_color})
        await terminal.sees("› ")
        terminal.types("one" + ALT_ENTER + "two" + ENTER)
        await terminal.sees("› one\n  two\n")
        await terminal.sees("Title\n\n • one\n • two\n")
        await terminal.sees("█░\n")
        terminal.types("/he" + TAB)
        await terminal.sees("/help")
        terminal.types(CTRL_C + CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
    parameters = {int(number) for style in re.findall(rb"\x1b\[([0-9;]+)m", terminal.bytes) for number in style.split(b";")}
    assert {1, 2} <= parameters  # bold and dim
    assert any(number >= 30 for number in parameters) is (no_color == "")


async def test_a_long_answer_goes_up_whole_on_a_small_terminal(tmp_path: Path) -> None:
    code = "".join(f"line_{number} = {number}\n" for number in range(60))
    async with prompt_ui(tmp_path, {"text": f"```python\n{code}```\n", "delay_ms": 2}, columns=30, rows=8) as (_, terminal):
        terminal.types("go" + ENTER)
        for number in range(60):
            await terminal.sees(f"line_{number} = {number}\n")


async def test_what_runs_is_said_above_the_prompt(tmp_path: Path) -> None:
    with replies_wait():
        async with prompt_ui(tmp_path, {"text": "one two three", "delay_ms": 700}) as (_, terminal):
            terminal.types("go" + ENTER)
            await terminal.sees("thinking")
            await terminal.sees("writing")
            terminal.types("more" + ENTER)
            await terminal.sees("1 waiting")
            terminal.types(CTRL_C)
            await terminal.sees("(stopped)\n")
            terminal.types(CTRL_C)
            await terminal.sees("(stopped)\n")


async def test_what_is_typed_while_an_answer_is_written_stands_behind_it_and_before_its_own(tmp_path: Path) -> None:
    first = {"text": "The first paragraph.\n\nThe second paragraph.\n\nThe third paragraph.", "delay_ms": 250}
    async with prompt_ui(tmp_path, first, {"text": "The second answer."}, {"text": "The third answer."}) as (_, terminal):
        terminal.types("tell me" + ENTER)
        await terminal.sees("The first paragraph.")
        terminal.types("queued one" + ENTER)
        await terminal.sees("› queued one")
        terminal.types("queued two" + ENTER)
        await terminal.sees("› queued two")
        await terminal.sees("The third answer.")
        said = ["› tell me", "The first paragraph.", "The second paragraph.", "The third paragraph."]
        said += ["› queued one", "The second answer.", "› queued two", "The third answer."]
        places = [terminal.shown.index(text) for text in said]
        assert places == sorted(places)
        assert all(terminal.shown.count(text) == 1 for text in said)


async def test_a_command_is_answered_behind_the_answer_that_is_written(tmp_path: Path) -> None:
    first = {"text": "The first paragraph.\n\nThe second paragraph.\n\nThe third paragraph.", "delay_ms": 250}
    async with prompt_ui(tmp_path, first) as (_, terminal):
        terminal.types("tell me" + ENTER)
        await terminal.sees("The first paragraph.")
        terminal.types("/whoami" + ENTER)
        await terminal.sees("owner")
        await terminal.sees("The third paragraph.\n")
        await terminal.sees("› /whoami\n")
        assert terminal.shown.index("The third paragraph.") < terminal.shown.index("› /whoami")


async def test_what_waits_still_stands_there_when_the_person_leaves(tmp_path: Path) -> None:
    slow = {"text": "one two three", "delay_ms": 60_000}
    async with prompt_ui(tmp_path, slow, stop_within="0.1s") as (_, terminal):
        terminal.types("go" + ENTER)
        await terminal.sees("thinking")
        terminal.types("and this" + ENTER)
        await terminal.sees("1 waiting")
    assert "› and this\n" in terminal.shown


@pytest.mark.parametrize("styled", [True, False], ids=["styled", "unstyled"])
@pytest.mark.parametrize("columns", [24, 44, 60])
async def test_no_remark_breaks_inside_a_word_on_a_narrow_terminal(columns: int, styled: bool, tmp_path: Path) -> None:
    stale = {"COLUMNS": "200"} if styled else {"COLUMNS": "200", "TERM": "dumb"}  # as a shell has exported it before
    async with gateway(tmp_path) as g, Terminal(columns, 24) as terminal:
        process = await terminal.chat(g.url, environment={**environment(tmp_path), **stale})
        await terminal.sees("leaves.")
        await terminal.sees("› ")
        banner = terminal.shown.partition("›")[0].split()
        assert {"session", "main,", "model", "scripted:echo.", "/help", "commands,", "answer,", "Ctrl-D"} <= set(banner)
        terminal.types("/switch not a key" + ENTER)
        await terminal.sees("conversation:")
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0


async def test_a_message_may_have_several_lines(tmp_path: Path) -> None:
    async with prompt_ui(tmp_path) as (g, terminal):
        terminal.types("one" + ALT_ENTER + "two" + CTRL_J + "three" + ENTER)
        await terminal.sees("› one\n  two\n  three\n")
        terminal.types(PASTE.format("pasted\r\n\ttext\r\n") + ENTER)
        await terminal.sees("› pasted\n")
        await until(lambda: len(received(g.journals())) == 2)
        texts = received(g.journals())
        assert texts[0] == "one\ntwo\nthree"
        assert [line.strip() for line in texts[1].splitlines()] == ["pasted", "text"]


async def test_what_is_typed_before_the_prompt_is_there_is_entered_where_enter_was_pressed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, Terminal() as terminal:
        terminal.types("one" + ENTER + "two" + ENTER + "thr")
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("› one\n")
        await terminal.sees("› two\n")
        await terminal.sees("› thr")
        terminal.types("ee" + ENTER)
        await terminal.sees("\nthree\n")
        assert received(g.journals()) == ["one", "two", "three"]
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        assert terminal.echoes


async def test_ctrl_c_empties_the_line_and_the_up_arrow_brings_it_back(tmp_path: Path) -> None:
    async with prompt_ui(tmp_path) as (g, terminal):
        terminal.types("not yet")
        await terminal.sees("› not yet")
        terminal.types(CTRL_C)
        await until(lambda: "not yet" not in terminal.shown)
        terminal.types(UP)
        await terminal.sees("› not yet")
        assert g.journals() == {}
        terminal.types(CTRL_C)
        await until(lambda: "not yet" not in terminal.shown)


async def test_ctrl_c_twice_leaves(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, Terminal() as terminal:
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("Ctrl-D leaves.")
        terminal.types(CTRL_C)
        await terminal.sees("Press Ctrl-C again")
        terminal.types(CTRL_C)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        assert terminal.echoes


async def test_a_terminal_is_left_as_it_was_found_when_the_program_is_ended(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, Terminal() as terminal:
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("› ")
        assert not terminal.echoes
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 143
        assert terminal.echoes


async def test_commands_are_completed(tmp_path: Path) -> None:
    async with prompt_ui(tmp_path) as (_, terminal):
        terminal.types("/sw")
        await terminal.sees("/switch [KEY]")
        terminal.types(TAB + "other" + ENTER)
        await terminal.sees("session other")
        terminal.types("hello there" + ENTER)
        await terminal.sees("› hello there\nhello there\n")
        terminal.types("/switch bad key" + ENTER)
        await terminal.sees("/switch takes the name of a conversation")


async def test_a_conversation_is_picked_and_shows_its_last_exchanges(tmp_path: Path) -> None:
    async with prompt_ui(tmp_path) as (g, terminal):
        other = await g.connect()
        for number in range(5):
            await other.chat(f"bees {number}", session="garden")
        terminal.types("/sessions" + ENTER)
        await terminal.sees(" bees 0 ")  # the beginning of its first message, as it has no title
        terminal.types("gar")
        await terminal.sees("› /switch gar")
        terminal.types(TAB)
        await terminal.sees("› /switch garden")
        terminal.types(ENTER)
        await terminal.sees("session garden")
        await terminal.sees("› bees 4\n")
        assert "bees 1" not in terminal.shown
        assert terminal.shown.count("bees 2") == 2, "the message and its answer"
        terminal.types("and now?" + ENTER)
        await terminal.sees("\nand now?\n")


async def test_a_long_pasted_text_is_folded_until_it_is_sent(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(500))
    async with prompt_ui(tmp_path, {"text": "Long."}) as (g, terminal):
        terminal.types("see " + PASTE.format(text))
        await terminal.sees("› see [pasted 4 kB]")
        terminal.types(" please" + ENTER)
        await terminal.sees("Long.")
        assert received(g.journals()) == [f"see {text} please"]
        terminal.types(UP)
        await terminal.sees("line 499")
        terminal.types(CTRL_C)


async def test_a_file_that_a_message_names_goes_along(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("the file")
    async with prompt_ui(tmp_path, {"text": "Seen."}) as (g, terminal):
        terminal.types(f"Read @{tmp_path / 'notes.md'}, not @nobody." + ENTER)
        await terminal.sees("Seen.")
        (journal,) = g.journals().values()
        (message,) = [event for event in journal if event["kind"] == "message_received"]
    assert [file["name"] for file in message["attachments"]] == ["notes.md"]


async def test_help_tells_of_the_commands_of_this_program_too(tmp_path: Path) -> None:
    async with prompt_ui(tmp_path, columns=120, rows=60) as (g, terminal):
        terminal.types("/help" + ENTER)
        await terminal.sees("/attach PATH: Attach a file to the next message;")
        assert (
            terminal.shown.index("/stop: ")
            < terminal.shown.index("In this terminal")
            < terminal.shown.index("/switch [KEY]: ")
        )
        terminal.types("/help /switch" + ENTER)
        await terminal.sees("› /help /switch\n/switch [KEY]: Pick a conversation, or switch to KEY; a new KEY starts one.\n")
        terminal.types("/attach" + ENTER)
        await terminal.sees("/attach takes the path of a file: /attach PATH\n")
        assert received(g.journals()) == ["/help"]


async def test_what_was_typed_is_there_in_the_next_run_but_for_secrets(tmp_path: Path) -> None:
    async with prompt_ui(tmp_path) as (_, terminal):
        terminal.types("an open word" + ENTER)
        await terminal.sees("› an open word\nan open word\n")
        terminal.types(" a secret" + ENTER)
        await terminal.sees("›  a secret\n")
    file = tmp_path / "state" / "exuvia" / "chat_history"
    assert [json.loads(line) for line in file.read_bytes().splitlines()] == ["an open word"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with prompt_ui(tmp_path) as (_, terminal):
        terminal.types(UP + ENTER)
        await terminal.sees("› an open word\n")


async def test_what_is_typed_while_the_gateway_is_away_arrives_when_it_is_back(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, CuttingProxy(g.url) as proxy, Terminal() as terminal:
        process = await terminal.chat(proxy.url, environment=environment(tmp_path))
        await terminal.sees("› ")
        await proxy.stop()
        await terminal.sees("reconnecting)")
        terminal.types("are you there" + ENTER)
        await terminal.sees("1 to send")
        await proxy.start()
        await terminal.sees("(connected again)")
        await terminal.sees("are you there\n")
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        assert received(g.journals()) == ["are you there"]


async def test_what_the_gateway_has_is_not_said_to_be_sent_when_it_is_lost(tmp_path: Path) -> None:
    slow = [{"text": "one two three", "delay_ms": 300}]
    with replies_wait() as go_on:
        async with gateway(tmp_path, script=slow) as g, CuttingProxy(g.url) as proxy, Terminal() as terminal:
            process = await terminal.chat(proxy.url, environment=environment(tmp_path))
            await terminal.sees("› ")
            terminal.types("go" + ENTER)
            await terminal.sees("writing")
            terminal.types("more" + ENTER)
            await terminal.sees("1 waiting")
            await proxy.stop()
            await terminal.sees("not connected")
            terminal.types("and more" + ENTER)
            await terminal.sees(" · 1 waiting · 1 to send")
            terminal.types(CTRL_D)
            assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
            go_on.set()


async def test_what_is_typed_while_the_gateway_stops_is_answered_after_the_restart(tmp_path: Path) -> None:
    slow = [{"text": "slow answer", "delay_ms": 300}]
    async with AsyncExitStack() as stack:
        go_on = stack.enter_context(replies_wait())
        terminal = await stack.enter_async_context(Terminal(columns=200))
        async with gateway(tmp_path, script=slow) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            process = await terminal.chat(proxy.url, environment=environment(tmp_path))
            await terminal.sees("› ")
            terminal.types("go" + ENTER)
            await terminal.sees("slow")
            g.daemon.stop()
            terminal.types("do not lose me" + ENTER)
            await terminal.sees("(The gateway is stopping; try again in a moment. Your messages are kept and sent later.)")
            go_on.set()
        async with gateway(tmp_path) as g:
            proxy.upstream = g.url
            await terminal.sees("\ndo not lose me\n")
            terminal.types(CTRL_D)
            assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
            assert received(g.journals()) == ["go", "do not lose me"]
            assert "Not sent" not in terminal.shown


async def test_a_file_goes_along_with_the_next_message(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("some notes")
    async with prompt_ui(tmp_path, columns=200) as (g, terminal):
        terminal.types(f"/attach {tmp_path}/missing.txt" + ENTER)
        await terminal.sees("is not a file.")
        terminal.types(f"/attach {file}" + ENTER)
        await terminal.sees("notes.txt will be sent with the next message.")
        await terminal.sees("+notes.txt › ")
        terminal.types("read it" + ENTER)
        await terminal.sees("› read it\n")
        terminal.types("and this" + ENTER)
        await until(lambda: len(received(g.journals())) == 2)
        events = [line for lines in g.journals().values() for line in lines if line["kind"] == "message_received"]
        assert [[each["name"] for each in event["attachments"]] for event in events] == [["notes.txt"], []]


@pytest.mark.parametrize("evil", ["\x1b[2J\x1b]0;title\x07", "<http://a/%1b[2J>", "```\n\x1b[2J\n```", "\x9b2J"])
async def test_no_escape_of_a_model_reaches_the_terminal(tmp_path: Path, evil: str) -> None:
    async with prompt_ui(tmp_path, {"text": f"before {evil} after\n\nend"}) as (_, terminal):
        terminal.types("go" + ENTER)
        await terminal.sees("end\n")
        assert b"\x1b[2J" not in terminal.bytes
        assert b"\x1b]" not in terminal.bytes
        assert "\x9b" not in terminal.bytes.decode()


async def test_a_terminal_may_change_its_size_while_an_answer_is_written(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(60)]
    async with prompt_ui(tmp_path, {"text": " ".join(words), "delay_ms": 20}) as (_, terminal):
        terminal.types("go" + ENTER)
        await terminal.sees("word9")
        terminal.resize(30, 10)
        await terminal.sees("word30")
        terminal.resize(120, 40)
        await terminal.sees("word59\n")
        terminal.types("again" + ENTER)
        await terminal.sees("› again\n")


async def test_a_running_tools_output_is_shown_below_the_chat_and_a_finished_call_unfolds_by_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"agent.verbose": True}
    async with working(tmp_path, monkeypatch, settings=settings) as g, Terminal(60, 30) as terminal:
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("› ")
        terminal.types("run the tests" + ENTER)
        await terminal.sees("running work make test")
        Working.orders.put_nowait("\x1b[31mtest_a\x1b[0m passed\n" + "x" * 200 + "\n")
        await terminal.sees("  test_a passed\n  " + "x" * 57 + "\n")
        terminal.types(CTRL_O)
        await until(lambda: "test_a passed" not in terminal.shown)
        terminal.types(CTRL_O)
        await terminal.sees("  test_a passed\n")
        diff = "--- a.md\n+++ a.md\n@@ -1 +1 @@\n-old\n+new\n"
        Working.orders.put_nowait(ToolOutput(text="\x1b[2J1 of 2 failed.", exit_code=1, diff=diff))
        await terminal.sees("✗ work make test · exit 1 · +1 −1 · ")
        await terminal.sees("Done.\n")
        assert "test_a passed" not in terminal.shown
        terminal.types(CTRL_O)
        await terminal.sees(
            "\ncommand: make test\nchanges:\n--- a.md\n+++ a.md\n@@ -1 +1 @@\n-old\n+new\noutput:\n1 of 2 failed.\n"
        )
        assert b"\x1b[32m+new\x1b[0m" in terminal.bytes
        terminal.types(CTRL_O)
        await terminal.sees("There is no other tool call or reasoning to show.\n")
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0


async def test_without_verbose_a_call_is_shown_only_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(tmp_path, monkeypatch) as g, Terminal(60, 30) as terminal:
        process = await terminal.chat(g.url, environment=environment(tmp_path))
        await terminal.sees("› ")
        terminal.types("run the tests" + ENTER)
        await terminal.sees("running work make test")
        Working.orders.put_nowait("first\n")
        Working.orders.put_nowait("second\n")
        terminal.types(CTRL_O)
        await terminal.sees("  first\n  second\n")
        Working.orders.put_nowait(ToolOutput(text="Fine.", exit_code=0))
        await terminal.sees("Done.\n")
        assert "exit 0" not in terminal.shown
        terminal.types(CTRL_O)
        await terminal.sees("⚙ work make test · exit 0 · Fine. · ")
        terminal.types("/help" + ENTER)
        await terminal.sees("Ctrl-O")
        terminal.types(CTRL_D)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
