"""A streamed answer on a terminal: written, withdrawn, written again and confirmed."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversations.routing.subagents import ChildResult, result_text
from gateway.protocol.client_frames import Deleted, Delta, Output, Reasoning, Refusal, RemovedCount, Settings, Welcome
from gateway.support.printable import one_line, printable
from gateway.support.sentences import call_line, returned_line
from gateway.terminal.client.signals import Connected, Disconnected, Happened, Signal
from gateway.terminal.renderer import PROMPT, PlainRenderer
from gateway.terminal.screen import CLIENT, Page, Screen
from gateway.terminal.shown_calls import ShownCalls
from sessions.events.events import (
    CallRef,
    ChildStarted,
    CommandAnswered,
    CompactionBegan,
    ContextCompacted,
    Event,
    Failure,
    MemoryRecalled,
    MessageReceived,
    ModelReplied,
    RecalledHit,
    Recorded,
    RequestedCall,
    ToolCalled,
    ToolReturned,
    Trigger,
    TurnEnded,
)
from sessions.events.messages import Usage

CALL = CallRef(of=9, index=0)

AGAIN = "(starting again)\n"


def happened(event: Event, turn: int | None = 1) -> Happened:
    return Happened("s", Recorded(seq=9, at="2026-11-21T12:00:00.000Z", turn=turn, event=event))


def piece(text: str, offset: int, reply: int = 1) -> Delta:
    return Delta(session="main", session_id="s", turn=1, reply=reply, offset=offset, text=text)


def replied(text: str, *calls: RequestedCall, reply: int = 1) -> Happened:
    return happened(ModelReplied(reply=reply, model="m", text=text, calls=calls, stop="end", usage=None))


def shown(*signals: Signal, ours: bool = True) -> str:
    """Return what a terminal without styles shows of these signals."""
    out = io.StringIO()
    screen = Screen(PlainRenderer(out, styled=False), address="ws://127.0.0.1:7117/ws", session="main")
    for signal in signals:
        screen.show(signal, ours=ours)
    return out.getvalue()


def page(*signals: Signal, ours: bool = True) -> tuple[str, str]:
    """Return the output to a pipe, and the errors."""
    out, complaints = io.StringIO(), io.StringIO()
    for signal in signals:
        Page(out, complaints).show(signal, ours=ours)
    return out.getvalue(), complaints.getvalue()


def test_an_answer_appears_piece_by_piece_and_its_confirmation_adds_only_what_is_missing() -> None:
    assert shown(piece("Hel", 0), piece("lo", 3), replied("Hello there")) == "Hello there\n"


def test_pieces_that_come_again_after_a_break_are_not_shown_twice() -> None:
    assert shown(piece("Hel", 0), piece("Hello", 0), piece("lo you", 3), replied("Hello you")) == "Hello you\n"


def test_pieces_that_come_after_their_confirmation_are_not_shown_again() -> None:
    ended = happened(TurnEnded(outcome="replied", millis=1))
    assert shown(piece("Hello", 0), replied("Hello"), piece("Hello", 0)) == "Hello\n"
    assert shown(piece("Hel", 0), ended, piece("Hel", 0), piece("lo", 3, reply=2)) == "Hel\n"


def test_an_automatic_compaction_is_told_where_more_is_shown_and_one_that_was_asked_for_by_its_answer_alone() -> None:
    def compacted(trigger: Trigger) -> str:
        began = CompactionBegan(compaction=1, trigger=trigger, keep_from=3, tokens_before=9)
        done = ContextCompacted(compaction=1, keep_from=3, summary="s", by="extract", tokens_before=9, tokens_after=5)
        return shown(
            Settings(session="main", session_id="s", queue="followup", verbose=True), happened(began), happened(done)
        )

    assert compacted("budget") == "🧹 Auto-compaction complete\n"
    assert compacted("command") == ""
    assert compacted("new") == ""


def test_a_deletion_is_told_with_what_remains_and_without_the_escapes_of_names() -> None:
    deleted = Deleted(session="main", removed=RemovedCount(sessions=2), remains=["Notes: \x1b[2J.", "Backups."])
    begun_anew = "This conversation was deleted; a message begins a new one.\n"
    assert shown(deleted) == f"{begun_anew}This remains: {one_line(deleted.remains[0], 500)}\nThis remains: Backups.\n"
    assert page(deleted) == ("", "")


def test_pieces_behind_a_jump_wait_for_the_confirmed_text() -> None:
    assert shown(piece("one ", 0), piece("three", 8), replied("one two three")) == "one two three\n"


def test_another_reply_of_the_turn_takes_back_what_was_not_confirmed() -> None:
    assert shown(piece("wrong", 0), piece("right", 0, reply=2), replied("right", reply=2)) == f"wrong\n{AGAIN}right\n"


def test_a_reply_after_a_confirmed_one_takes_nothing_back() -> None:
    first, second = (
        (piece("let me look", 0), replied("let me look")),
        (piece("found", 0, reply=2), replied("found", reply=2)),
    )
    assert shown(*first, *second) == "let me look\nfound\n"


def test_a_confirmation_that_differs_from_the_pieces_is_shown_whole() -> None:
    assert shown(piece("abc", 0), replied("xyz")) == f"abc\n{AGAIN}xyz\n"


@given(st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=12), st.data())
def test_whatever_pieces_are_dropped_or_come_again_the_answer_stands_there_once(text: str, data: st.DataObject) -> None:
    spans = data.draw(st.lists(st.tuples(st.integers(0, len(text)), st.integers(1, 5)), max_size=6))
    pieces = [piece(text[start : start + length], start) for start, length in spans if text[start : start + length]]
    expected = printable(text)
    assert shown(*pieces, replied(text)).rstrip("\n") == expected.rstrip("\n")


def test_tools_and_tokens_are_shown_where_the_session_is_verbose_and_else_not() -> None:
    verbose = Settings(session="main", session_id="s", queue="followup", verbose=True)
    call = RequestedCall(id="c", tool="read", arguments='{"path":"notes.md"}')
    fine = ToolReturned(call=CALL, outcome="returned", output="long text", millis=40)
    bad = ToolReturned(call=CALL, outcome="failed", output="There is no\nsuch file.")
    assert shown(replied("", call), happened(fine), happened(bad)) == ""
    assert shown(verbose, replied("", call), happened(fine)) == "⚙ read notes.md · long text · 40 ms\n"
    assert shown(verbose, replied("", call), happened(bad)) == "✗ read notes.md · There is no such file.\n"
    assert shown(verbose, happened(fine)) == "⚙ a tool · long text · 40 ms\n"
    counted = ModelReplied(
        reply=1, model="m", text="hi", calls=(), stop="end", usage=Usage(input=1200, output=3, cached=1000)
    )
    assert shown(verbose, happened(counted)) == "hi\n· 1,200 tokens in (1,000 cached), 3 out\n"
    hit = RecalledHit(path="MEMORY.md", lines=(3, 7), digest="d", text="Tea.", score=1.0)
    recalled = happened(MemoryRecalled(query="tea", hits=(hit,), mark="m", millis=1))
    assert shown(verbose, recalled) == "· recalled MEMORY.md#L3-L7\n"
    off = msgspec.structs.replace(verbose, verbose=False)
    assert shown(verbose, off, recalled) == ""
    assert shown(verbose, off, happened(counted)) == "hi\n"


DIFF = "--- notes.md\n+++ notes.md\n@@ -1,2 +1,3 @@\n same\n-old\n--- a list\n+new\n+\x1b[2Jmore\n+++ x\n"


@pytest.mark.parametrize(
    ("returned", "line"),
    [
        (
            ToolReturned(call=CALL, outcome="returned", output="a\nb\n", exit_code=0, millis=3210),
            "⚙ {} · exit 0 · 2 lines · 3.2 s",
        ),
        (
            ToolReturned(call=CALL, outcome="returned", output="", exit_code=2, millis=65_000),
            "✗ {} · exit 2 · nothing · 1 min 5 s",
        ),
        (ToolReturned(call=CALL, outcome="returned", output="Edited.", diff=DIFF, millis=9), "⚙ {} · +3 −2 · 9 ms"),
        (ToolReturned(call=CALL, outcome="returned", output="x" * 29, millis=7_500_000), "⚙ {} · 1 line · 2 h 5 min"),
        (ToolReturned(call=CALL, outcome="returned", output="\x1b]0;title\x07\x1b[31mred\x1b[0m\r\n"), "⚙ {} · red"),
        (ToolReturned(call=CALL, outcome="unknown", output=""), "✗ {} · unknown"),
    ],
)
def test_a_call_and_its_result_take_one_line(returned: ToolReturned, line: str) -> None:
    call = RequestedCall(id="c", tool="shell", arguments='{"timeout":9,"command":"make  test"}')
    assert returned_line(call, returned) == line.format("shell make test")


def test_a_call_unfolds_to_its_arguments_changes_and_output_and_then_the_one_before_it() -> None:
    first = RequestedCall(id="c", tool="shell", arguments='{"command":"make test","limit":3}')
    second = RequestedCall(id="d", tool="edit", arguments='{"path":"notes.md","old":"a\\nb","new":""}')
    out = io.StringIO()
    screen = Screen(PlainRenderer(out, styled=True), address="a", session="main")
    for signal in (
        replied("", first, second),
        happened(
            ToolReturned(call=CALL, outcome="returned", output="\x1b[1mfine\x1b[0m\n" * 300, cut_from=9000, exit_code=0)
        ),
        happened(ToolReturned(call=CallRef(of=9, index=1), outcome="returned", output="Edited.", diff=DIFF)),
    ):
        screen.show(signal, ours=True)
    assert out.getvalue() == ""
    screen.unfold()
    assert out.getvalue() == (
        "\n⚙ edit notes.md · +3 −2\npath: notes.md\n\x1b[2mold:\x1b[0m\na\nb\nnew: \n"
        "\x1b[2mchanges:\x1b[0m\n\x1b[2m--- notes.md\x1b[0m\n\x1b[2m+++ notes.md\x1b[0m\n\x1b[2m@@ -1,2 +1,3 @@\x1b[0m\n"
        " same\n\x1b[31m-old\x1b[0m\n\x1b[31m--- a list\x1b[0m\n"
        "\x1b[32m+new\x1b[0m\n\x1b[32m+[2Jmore\x1b[0m\n\x1b[32m+++ x\x1b[0m\n\x1b[2moutput:\x1b[0m\nEdited.\n"
    )
    out.truncate(0)
    out.seek(0)
    screen.unfold()
    shown_first = out.getvalue()
    assert shown_first.startswith("\n⚙ shell make test · exit 0 · 300 lines\ncommand: make test\nlimit: 3\n")
    assert "output, shortened from 9,000 bytes:" in shown_first
    assert (shown_first.count("fine\n"), shown_first.count("[… 100 lines …]\n")) == (200, 1)
    screen.unfold()
    assert out.getvalue().endswith("There is no other tool call or reasoning to show.\n")


# --- reasoning --------------------------------------------------------------------------------------------------------


def thought(text: str, offset: int) -> Reasoning:
    return Reasoning(session="main", session_id="s", turn=1, reply=1, offset=offset, text=text)


def reasoned(text: str, reasoning: str) -> Happened:
    event = ModelReplied(reply=1, model="m", text=text, calls=(), stop="end", usage=None)
    return happened(msgspec.structs.replace(event, reasoning=reasoning, reasoning_millis=2500))


def test_reasoning_is_one_line_above_its_answer() -> None:
    pieces = thought("I add ", 0), thought("it up.", 6), piece("Four", 0)
    assert shown(*pieces, reasoned("Four.", "I add it up."), thought("it up.", 6)) == "✻ thought\nFour.\n"
    assert shown(reasoned("Four.", "I add it up.")) == "✻ thought for 2.5 s\nFour.\n"


def test_reasoning_unfolds_and_its_end_is_known_while_it_comes() -> None:
    calls = ShownCalls()
    for signal in (thought("one\ntwo\n", 0), thought("two\nthree\x1b[1m\n", 4), thought("three\x1b[1m\n", 8)):
        calls.reasoning(signal)
    assert (calls.running, calls.tail()) == (True, "one\ntwo\nthree")
    assert calls.answering() is not None
    assert (calls.running, calls.tail(), calls.answering()) == (False, "", None)
    out = io.StringIO()
    screen = Screen(PlainRenderer(out, styled=False), address="a", session="main")
    screen.show(reasoned("Four.", "I add\x1b[2J it up."), ours=True)
    screen.unfold()
    assert out.getvalue().endswith("Four.\n\n✻ thought for 2.5 s\nI add it up.\n")


def output(text: str, offset: int) -> Output:
    return Output(session="main", session_id="s", turn=1, call=CALL, offset=offset, text=text)


def test_the_end_of_a_running_tools_output_is_known_whatever_was_dropped_or_came_again() -> None:
    calls = ShownCalls()
    calls.event(9, ToolCalled(call=CALL, repeatable=True))
    calls.output(output("one\n\x1b[3", 0))
    calls.output(output("1mtwo\n", 7))
    assert calls.tail() == "one\ntwo"
    calls.output(output("one\n\x1b[31mtwo\n", 0))
    calls.output(output("four\n", 20))
    assert calls.tail() == "one\ntwo\n\n[…]\nfour"
    calls.output(output("five\nsix\n", 25))
    assert calls.tail() == "two\n\n[…]\nfour\nfive\nsix"
    calls.event(10, ToolReturned(call=CALL, outcome="returned", output="done"))
    calls.output(output("late", 34))
    assert calls.tail() == ""


def test_a_calls_line_names_several_arguments_and_survives_those_that_are_no_json() -> None:
    assert call_line(RequestedCall(id="c", tool="read", arguments='{"path":"a","limit":3}')) == "⚙ read path=a limit=3"
    assert call_line(RequestedCall(id="c", tool="read", arguments='{"path')) == '⚙ read {"path'
    assert call_line(RequestedCall(id="c", tool="read", arguments="")) == "⚙ read"


def test_a_turn_that_failed_ends_in_one_sentence() -> None:
    failed = TurnEnded(outcome="failed", millis=1, error=Failure(code="unreachable", sentence="No answer came."))
    assert shown(piece("par", 0), happened(failed)) == "par\nNo answer came.\n"
    assert shown(happened(TurnEnded(outcome="cancelled", millis=1))) == "(stopped)\n"
    assert page(happened(failed)) == ("", "exuvia: No answer came.\n")


def test_what_others_write_is_shown_with_their_clients_name() -> None:
    for client, place in (("phone", "phone"), (CLIENT, "another terminal"), ("", "elsewhere")):
        message = MessageReceived(
            id="1", client=client, sender="owner", channel="websocket", chat="private", text="hi", attachments=()
        )
        assert shown(happened(message, None), ours=False) == f"(from {place}) hi\n"
        assert shown(happened(message, None), ours=True) == ""


def test_the_first_line_names_the_model_and_how_to_get_help() -> None:
    welcome = Welcome(protocol=1, server="exuvia/0.1.0", model="openai:gpt-5")
    line, *rest = shown(Connected(welcome), Disconnected("gone"), Connected(welcome)).splitlines()
    assert "openai:gpt-5" in line
    assert "/help" in line
    assert rest == ["(gone; reconnecting)", "(connected again)"]


def test_a_prompt_gives_way_to_what_comes() -> None:
    out = io.StringIO()
    screen = Screen(PlainRenderer(out, styled=False), address="a", session="main")
    screen.prompt()
    screen.prompt()
    screen.show(replied("hello"), ours=False)
    screen.prompt()
    assert out.getvalue() == f"{PROMPT}\nhello\n{PROMPT}"


def test_a_pipe_is_given_only_confirmed_text_and_only_our_own_answers() -> None:
    assert page(piece("par", 0), replied("whole\n")) == ("whole\n", "")
    assert page(replied("not ours"), ours=False) == ("", "")
    assert page(happened(CommandAnswered(answers=1, answer="**done**", failed=False))) == ("**done**\n", "")


def test_what_is_refused_is_told_in_one_sentence() -> None:
    refusal = Refusal(code="storage_failed", message="The disk is full.\nReally.")
    assert page(refusal) == ("", "exuvia: The disk is full. Really.\n")
    assert shown(refusal) == "The disk is full. Really.\n"


@given(st.text(st.characters(codec=None)))
def test_no_text_of_a_model_moves_the_cursor_or_turns_the_direction(text: str) -> None:
    controls = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - set("\n\t")
    directions = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
    plain = printable("".join(controls | directions) + text)
    assert not set(plain) & (controls | directions)
    plain.encode()


def test_one_line_is_never_longer_than_its_limit() -> None:
    assert one_line("a\nb\tc\x1b d", 100) == "a b c d"
    assert one_line("abcdef", 4) == "abc…"


def test_the_result_of_a_subagent_does_not_look_like_a_message_of_a_person() -> None:
    started = ChildStarted(child="main.sub.abc123", task="Count.", origin="o", tokens=9, channel="websocket", chat="private")
    result = ChildResult(session="s", seq=3, outcome="replied", text="two\nbooks")
    text = result_text(started, result)
    for ours in (True, False):
        received = happened(told("child:main.sub.abc123", text), None)
        assert shown(received, ours=ours).splitlines() == [
            "┌─ the subagent main.sub.abc123 reports (/switch main.sub.abc123 shows its work):",
            "│  Task: Count.",
            "│",
            "│  two",
            "│  books",
        ]
    task = shown(happened(told("parent:main", "Count."), None), ours=False)
    assert task.splitlines() == ["┌─ the task of this subagent, from main:", "│  Count."]


def told(client: str, text: str) -> MessageReceived:
    return MessageReceived(
        id="m", client=client, sender="owner", channel="websocket", chat="private", text=text, attachments=()
    )
