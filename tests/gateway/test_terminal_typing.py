"""Input at the terminal: history, completion, and the description of what runs."""

from __future__ import annotations

import json
import os
import pty
import stat
import threading
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from gateway.protocol.client_frames import CommandLine, Delta, Paused, SessionSummary, Welcome
from gateway.terminal.activity import Activity
from gateway.terminal.client.signals import Connected, Disconnected, Happened
from gateway.terminal.input_line import KEPT, LARGEST, LONGEST, Completions, InputHistory, history_file
from gateway.terminal.keyboard import Keyboard
from gateway.terminal.local_commands import own_hint
from sessions.events.events import (
    CallRef,
    Event,
    ModelReplied,
    Recorded,
    RequestedCall,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from tests.waiting import until


def completed(typed: str) -> list[str]:
    commands = (CommandLine(name="status", usage="/status"), CommandLine(name="model", usage="/model [NAME]"))
    listed = [
        SessionSummary(session=key, session_id="", head=1, title=title)
        for key, title in (("main", ""), ("other", "Bees"), ("office", ""))
    ]
    completions = Completions(commands=lambda: commands, sessions=lambda: listed)
    return [each.text for each in completions.get_completions(Document(typed), CompleteEvent())]


def test_commands_sessions_and_paths_are_completed_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    assert completed("/") == ["/attach ", "/model ", "/status", "/switch "]
    assert completed("/st") == ["/status"]
    assert completed("/switch o") == ["other", "office"]
    assert completed("/switch bee") == ["other"], "by its title"
    assert completed(f"look at @{tmp_path}/no") == ["tes.md"]
    assert completed("ana@example.org") == []
    assert completed(f"/attach {tmp_path}/no") == ["tes.md"]
    assert completed("say /st") == completed("/st\n/st") == completed("") == []


def test_subagents_are_listed_below_their_conversation() -> None:
    parents = {"c": "a", "b": "", "a": "", "d": "c", "e": "gone", "x": "y", "y": "x"}
    listed = [SessionSummary(session=key, session_id="", head=1, parent=parent) for key, parent in parents.items()]
    completions = Completions(commands=tuple, sessions=lambda: listed)
    found = completions.get_completions(Document("/switch "), CompleteEvent())
    assert [each.display_text for each in found] == ["b", "a", "└ c", "  └ d", "e", "x", "y"]


async def test_what_was_typed_ahead_of_a_switch_is_read_after_it_by_the_one_reader() -> None:
    read, write = os.pipe()
    keyboard = Keyboard(read)
    os.write(write, b"/switch other\nhello\nthe")
    async for line in keyboard.lines():
        assert line == "/switch other"
        break
    os.write(write, b"re")
    os.close(write)
    assert [line async for line in keyboard.lines()] == ["hello", "there"]
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "keyboard"])
    os.close(read)


def test_the_history_gives_back_what_an_earlier_run_kept_newest_first(tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    first = InputHistory(file)
    for entry in ("one", "two\nlines", " a secret", "two\nlines", "\n", "x" * (LONGEST + 1), "你好"):
        first.append_string(entry)
    assert list(InputHistory(file).load_history_strings()) == ["你好", "two\nlines", "one"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"secret" not in file.read_bytes()


def test_the_history_is_bounded_and_survives_what_is_no_entry(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_bytes(b"not json\n\xff\n42\n" + b'"entry"\n' * (KEPT + 10))
    assert list(InputHistory(file).load_history_strings()) == ["entry"] * KEPT
    history = InputHistory(file)
    for number in range(LARGEST // 5000):
        history.append_string(f"{number} " + "y" * 9000)
    assert file.stat().st_size <= LARGEST + LONGEST
    assert json.loads(file.read_bytes().splitlines()[-1]).startswith(f"{LARGEST // 5000 - 1} ")
    assert [each.name for each in tmp_path.iterdir()] == ["history"]


def test_without_a_place_for_the_history_one_can_type_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = InputHistory(tmp_path / "file" / "history")
    history.append_string("one")
    assert history.get_strings() == ["one"]


def test_the_history_stands_in_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert history_file({"XDG_STATE_HOME": "/state"}) == Path("/state/exuvia/chat_history")
    assert history_file({"XDG_STATE_HOME": "relative"}) == Path("/home/anna/.local/state/exuvia/chat_history")


def told(*steps: tuple[float, Event], now: float, waiting: int = 0, unsent: int = 0) -> str | None:
    activity = Activity()
    for seq, (at, event) in enumerate(steps):
        activity.fold(Happened("s", Recorded(seq=seq, at="2026-11-21T12:00:00.000Z", turn=1, event=event)), at)
    running = not steps or not isinstance(steps[-1][1], TurnEnded)
    return activity.sentence(now, running=int(running and bool(steps)), waiting=waiting, unsent=unsent)


STARTED = TurnStarted(takes=(1,), provider="p", model="m", window=None, reserve=0)
ASKED = ModelReplied(
    reply=1, model="m", text="", calls=(RequestedCall(id="c", tool="re\x1bad", arguments="{}"),), stop="calls", usage=None
)
CALLED = ToolCalled(call=CallRef(of=1, index=0), repeatable=True)
RETURNED = ToolReturned(call=CallRef(of=1, index=0), outcome="returned", output="")
ENDED = TurnEnded(outcome="replied", millis=1)


def test_what_runs_is_named_with_its_seconds() -> None:
    assert told((0, STARTED), now=0.5) == "thinking"
    assert told((0, STARTED), (1, ASKED), (2, CALLED), now=14.2, waiting=2) == "running read · 12 s · 2 waiting"
    assert told((0, STARTED), (1, ASKED), (2, CALLED), (3, RETURNED), now=4) == "thinking · 1 s"
    assert told((0, STARTED), (9, ENDED), now=10) is None
    assert told(now=1, waiting=1) == told(now=1, unsent=1) == "waiting for the gateway"
    assert told((0, STARTED), now=0.5, waiting=2, unsent=1) == "thinking · 2 waiting · 1 to send"


def test_a_lost_connection_is_said_with_what_there_is_to_send_and_what_the_gateway_has() -> None:
    activity = Activity()
    activity.fold(Disconnected("gone"), 5)
    lost = "not connected, reconnecting · 2 s"
    assert activity.sentence(7.5, running=1, waiting=1, unsent=2) == f"{lost} · 1 waiting · 2 to send"
    assert activity.sentence(7.5, running=1, waiting=1, unsent=0) == f"{lost} · 1 waiting"
    assert activity.sentence(7.5, running=0, waiting=0, unsent=0) == lost
    activity.fold(Connected(Welcome(protocol=1, server="exuvia")), 8)
    activity.fold(Delta(session="main", session_id="s", turn=1, reply=1, offset=0, text="a"), 8)
    assert activity.sentence(8, running=1, waiting=0, unsent=0) == "writing"


def test_a_request_that_is_sent_again_later_is_counted_down_until_its_turn_goes_on() -> None:
    activity = Activity()

    def happens(event: Event, *, turn: int) -> None:
        activity.fold(Happened("s", Recorded(seq=1, at="2026-11-21T12:00:00.000Z", turn=turn, event=event)), 3)

    def sentence(now: float, *, waiting: int = 0) -> str | None:
        return activity.sentence(now, running=1, waiting=waiting, unsent=0)

    happens(STARTED, turn=1)
    paused = Paused(session="main", session_id="s", turn=1, seconds=4, reason="status\x1b 429")
    activity.fold(paused, 3)
    assert sentence(3.1, waiting=1) == "the provider is not accepting requests (status 429); trying again in 4 s · 1 waiting"
    happens(STARTED, turn=2)
    assert sentence(6.5) == "the provider is not accepting requests (status 429); trying again in 1 s"
    assert sentence(7) == "thinking · 4 s"
    activity.fold(Delta(session="main", session_id="s", turn=1, reply=1, offset=0, text="a"), 8)
    assert sentence(8) == "writing"
    activity.fold(paused, 9)
    happens(RETURNED, turn=1)
    assert sentence(9) == "thinking · 6 s"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/swich other", "There is no command /swich; did you mean /switch?"),
        ("/atach a.png", "There is no command /atach; did you mean /attach?"),
        ("/quit", "Ctrl-D leaves."),
        ("/staus", None),
        ("/status", None),
        ("/xyzzy", None),
        ("/usr/bin is a folder", None),
        ("switch", None),
    ],
)
def test_a_mistyped_command_of_the_terminal_is_answered_there_and_any_other_by_the_gateway(
    line: str, hint: str | None
) -> None:
    assert own_hint(line, [CommandLine(name="status", usage="/status", summary="")]) == hint


async def test_a_text_that_is_pasted_at_a_terminal_without_a_prompt_is_one_line_and_typed_lines_are_several() -> None:
    near, far = pty.openpty()
    keyboard = Keyboard(far)
    try:
        lines = keyboard.lines()
        os.write(near, "def roof():\n    return 'ü'\n".encode())
        assert await anext(lines) == "def roof():\n    return 'ü'"
        for line in ("typed", "and more"):
            os.write(near, f"{line}\n".encode())
            assert await anext(lines) == line
        os.write(near, b"last\n\x04")
        assert [line async for line in lines] == ["last"]
    finally:
        os.close(near)
        os.close(far)
