"""The checker names what is wrong with a history, and finds nothing in one that is sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cluster.checker import check
from benchmarks.cluster.history import Append, Attempt, Event, History, SessionLog, Stream, digest


def event(seq: int, kind: str, turn: int | None = None, **fields: Any) -> Event:
    return {"seq": seq, "turn": turn, "kind": kind, **fields}


def received(seq: int, message: str) -> Event:
    return event(seq, "message_received", id=message, text=f"text of {message}")


def sound() -> tuple[History, list[SessionLog]]:
    """Three messages of two sessions of a key, of which the first ran a tool; two writers; and two subscribers."""
    call = {"of": 4, "index": 0}
    first = [
        event(1, "session_opened", session="s1", key="k"),
        received(2, "a"),
        event(3, "turn_started", 1, takes=[2]),
        event(4, "model_replied", 1, text="", calls=[{"id": "x", "tool": "effect", "arguments": "{}"}]),
        event(5, "tool_called", 1, call=call, repeatable=False),
        event(6, "tool_returned", 1, call=call, outcome="returned", output="Done."),
        event(7, "model_replied", 1, text="done", calls=[]),
        event(8, "turn_ended", 1, outcome="replied"),
        received(9, "b"),
        event(10, "turn_started", 2, takes=[9]),
        event(11, "model_replied", 2, text="yes", calls=[]),
        event(12, "turn_ended", 2, outcome="replied"),
    ]
    second = [
        event(1, "session_opened", session="s2", key="k", succeeds={"session": "s1", "seq": 12}),
        received(2, "c"),
        event(3, "turn_started", 1, takes=[2]),
        event(4, "turn_ended", 1, outcome="cancelled"),
    ]
    appends = [
        Append(first=1, last=4, epoch=1, writer="gw1.1"),
        Append(first=5, last=5, epoch=1, writer="gw1.1"),
        Append(first=6, last=5, epoch=3, writer="gw2.1"),
        Append(first=6, last=12, epoch=3, writer="gw2.1"),
    ]
    logs = [
        SessionLog(session="s1", key="k", head=12, events=first, appends=appends),
        SessionLog(session="s2", key="k", head=4, events=second, succeeds="s1"),
    ]
    places = {"a": ("s1", 2), "b": ("s1", 9), "c": ("s2", 2)}
    attempts = [
        Attempt(
            client="p", key="k", id=message, text=f"text of {message}", began=at, ended=at + 0.5,
            outcome="accepted", session=session, seq=seq,
        )
        for at, (message, (session, seq)) in enumerate(places.items())
    ]  # fmt: skip
    attempts.insert(1, replace(attempts[0], began=0.6, ended=0.7))
    attempts.insert(1, replace(attempts[0], began=0.1, ended=0.2, outcome=None, session="", seq=0))
    shown = [("s1", each["seq"], digest(each)) for each in first] + [("s2", each["seq"], digest(each)) for each in second]
    streams = [
        Stream(client="p", key="k", events=shown[1:]),
        Stream(client="w", key="k", session="s1", after=8, events=shown[8:]),
    ]
    return History(attempts=attempts, streams=streams, effects=Counter({"s1/4/0": 1})), logs


def removed(seq: int) -> Callable[[History, list[SessionLog]], None]:
    """Remove an event of the first session, and number the rest again: as if it had never been."""

    def change(history: History, logs: list[SessionLog]) -> None:
        events = logs[0].events[: seq - 1] + [{**each, "seq": each["seq"] - 1} for each in logs[0].events[seq:]]
        logs[0].events, logs[0].head = events, len(events)

    return change


def placed(seq: int, new: Event) -> Callable[[History, list[SessionLog]], None]:
    """Replace an event of the first session."""

    def change(history: History, logs: list[SessionLog]) -> None:
        logs[0].events[seq - 1] = {**new, "seq": seq}

    return change


def appended(*new: Event) -> Callable[[History, list[SessionLog]], None]:
    """Append events to the second session."""

    def change(history: History, logs: list[SessionLog]) -> None:
        for each in new:
            logs[1].events.append({**each, "seq": len(logs[1].events) + 1})
        logs[1].head = len(logs[1].events)

    return change


def appends(*new: Append) -> Callable[[History, list[SessionLog]], None]:
    def change(history: History, logs: list[SessionLog]) -> None:
        logs[0].appends = list(new)

    return change


def moved(history: History, logs: list[SessionLog]) -> None:
    history.attempts[2] = replace(history.attempts[2], seq=9)


def other_text(history: History, logs: list[SessionLog]) -> None:
    history.attempts[-1] = replace(history.attempts[-1], text="another")


def swapped(history: History, logs: list[SessionLog]) -> None:
    """`b` was sent and acknowledged before `a`, which stands before it."""
    history.attempts = [replace(each, began=each.began - 10, ended=each.ended - 10) if each.id == "b" else each
                        for each in history.attempts]  # fmt: skip


def last_session_lost(history: History, logs: list[SessionLog]) -> None:
    del logs[1]


def shortened(history: History, logs: list[SessionLog]) -> None:
    logs[0].head = 13


def damaged(history: History, logs: list[SessionLog]) -> None:
    logs[0].damage = "is damaged at 4"


def twice(history: History, logs: list[SessionLog]) -> None:
    history.effects["s1/4/0"] = 2


def never(history: History, logs: list[SessionLog]) -> None:
    history.effects.clear()


def elsewhere(history: History, logs: list[SessionLog]) -> None:
    history.effects["s1/9/0"] = 1


def skipped(history: History, logs: list[SessionLog]) -> None:
    del history.streams[0].events[4]


def skipped_first(history: History, logs: list[SessionLog]) -> None:
    del history.streams[1].events[0]


def repeated(history: History, logs: list[SessionLog]) -> None:
    history.streams[0].events.insert(4, history.streams[0].events[3])


def beyond(history: History, logs: list[SessionLog]) -> None:
    history.streams[1].events.append(("s2", 5, b""))


def other_event(history: History, logs: list[SessionLog]) -> None:
    history.streams[0].events[3] = ("s1", 5, digest(event(5, "something")))


def found(history: History, logs: list[SessionLog]) -> None:
    history.findings.append("unanswered: by a client")


def second_line(history: History, logs: list[SessionLog]) -> None:
    logs[1].succeeds = None


ENDED = event(0, "turn_ended", 2, outcome="replied")
OTHER = Append(first=6, last=12, epoch=1, writer="gw2.1")

FAULTS: dict[str, tuple[str, Callable[[History, list[SessionLog]], None]]] = {
    "an acknowledged message is missing": ("lost", removed(9)),
    "the last acknowledged events are missing": ("lost", last_session_lost),
    "a message was acknowledged at two places": ("moved", moved),
    "a message has another text": ("lost", other_text),
    "a message stands twice": ("doubled", appended(received(0, "a"))),
    "a later message stands before": ("reordered", swapped),
    "the head says more": ("damaged", shortened),
    "a line does not verify": ("damaged", damaged),
    "a message has no turn": ("unanswered", appended(received(0, "d"))),
    "a message has two turns": ("doubled", placed(10, event(0, "turn_started", 2, takes=[2, 9]))),
    "a turn has no end": ("unanswered", placed(12, event(0, "plugin_noted"))),
    "a turn began while another ran": ("overlap", placed(7, event(0, "turn_started", 2, takes=[]))),
    "a turn ended twice": ("overlap", placed(9, event(0, "turn_ended", 1, outcome="replied"))),
    "a turn has two answers": ("doubled", placed(6, event(0, "model_replied", 1, text="done", calls=[]))),
    "a turn has no answer": ("unanswered", placed(11, event(0, "plugin_noted"))),
    "a call has no result": ("unanswered", placed(6, event(0, "plugin_noted"))),
    "the tool acted twice": ("run twice", twice),
    "the tool did not act": ("lost", never),
    "the tool acted without a call": ("lost", elsewhere),
    "an epoch has two writers": ("epoch", appends(Append(first=1, last=5, epoch=1, writer="gw1.1"), OTHER)),
    "an earlier epoch came later": (
        "epoch",
        appends(Append(first=1, last=5, epoch=2, writer="gw1.1"), replace(OTHER, epoch=1)),
    ),
    "an epoch was written by another than its beginner": (
        "epoch",
        appends(Append(first=1, last=0, epoch=1, writer="gw1.1"), Append(first=1, last=12, epoch=1, writer="gw2.1")),
    ),
    "an append does not follow": ("epoch", appends(Append(first=1, last=4, epoch=1, writer="gw2.1"), OTHER)),
    "a subscriber missed an event": ("gap", skipped),
    "a subscriber missed the first event": ("gap", skipped_first),
    "a subscriber saw an event twice": ("doubled", repeated),
    "a subscriber saw what is not there": ("lost", beyond),
    "a subscriber saw another event": ("replaced", other_event),
    "a client found something": ("unanswered", found),
    "a key has two first sessions": ("doubled", second_line),
}


def test_a_sound_history_has_no_findings() -> None:
    assert check(*sound()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str) -> None:
    expected, change = FAULTS[name]
    history, logs = sound()
    change(history, logs)
    assert expected in {finding.partition(":")[0] for finding in check(history, logs)}
