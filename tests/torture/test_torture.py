"""Twenty seconds of torture (`make torture` takes ten minutes), and the proof that its checker finds faulty histories."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.gateway_process import ROOT
from tests.torture.checker import check
from tests.torture.history import Attempt, Event, History, Journal, Stream
from tests.torture.power import lose_unsynced


def event(seq: int, kind: str, turn: int | None = None, **fields: Any) -> Event:
    return {"seq": seq, "at": "2026-11-21T03:12:41.124Z", "turn": turn, "kind": kind, **fields}


def received(seq: int, id_: str) -> Event:
    return event(seq, "message_received", id=id_, text=id_)


def sound() -> tuple[History, list[Journal]]:
    """Two messages, of which the first ran a tool, seen by two clients; a `/new`; and a third."""
    call = {"of": 4, "index": 0}
    first = [
        event(1, "session_opened", session="s1", key="k"),
        received(2, "a"),
        event(3, "turn_started", 1, takes=[2]),
        event(4, "model_replied", 1, text="", calls=[{"id": "x", "tool": "stamp", "arguments": "{}"}]),
        event(5, "tool_called", 1, call=call, repeatable=False),
        event(6, "tool_returned", 1, call=call, outcome="returned", output="stamped"),
        event(7, "model_replied", 1, text="done", calls=[]),
        event(8, "turn_ended", 1, outcome="replied"),
        received(9, "b"),
        event(10, "turn_started", 2, takes=[9]),
        event(11, "turn_ended", 2, outcome="replied"),
        received(12, "/new"),
        event(13, "command_answered", answers=12, answer="", failed=False),
        event(14, "session_closed", reason="succeeded"),
    ]
    second = [
        event(1, "session_opened", session="s2", key="k", succeeds={"session": "s1", "seq": 12}),
        received(2, "c"),
        event(3, "turn_started", 1, takes=[2]),
        event(4, "turn_ended", 1, outcome="replied"),
    ]
    places = {"a": ("s1", 2), "b": ("s1", 9), "/new": ("s1", 12), "c": ("s2", 2)}
    attempts = [
        Attempt(id=id_, key="k", text=id_, began=at, ended=at + 0.5, outcome="accepted", session=session, seq=seq)
        for at, (id_, (session, seq)) in enumerate(places.items())
    ]
    shown = [("s1", each) for each in first] + [("s2", each) for each in second]
    streams = [Stream("ana", "k", events=copy.deepcopy(shown)), Stream("ben", "k", "s1", 8, events=copy.deepcopy(shown[8:]))]
    history = History(
        attempts=attempts,
        streams=streams,
        heads={"s1": 14, "s2": 4},
        followed={("ana", "s1"): 1, ("ana", "s2"): 1, ("ben", "s1"): 9, ("ben", "s2"): 1},
        uploads={"5feceb66": True},
        stamps=["s1/4/0"],
        listed={"k": ("s2", 4)},
    )
    return history, [Journal("s1", "k", first), Journal("s2", "k", second)]


def test_a_correct_history_has_no_findings() -> None:
    assert check(*sound()) == []


Harm = Callable[[History, list[Journal]], object]

HARMS: dict[str, tuple[Harm, str]] = {
    "an acknowledged message is gone": (
        lambda h, j: j[1].events.__delitem__(slice(1, 4)),
        "lost: c was acknowledged at ('s2', 2), which is not there",
    ),
    "another message stands in its place": (
        lambda h, j: j[1].events[1].update(id="d"),
        "lost: c was acknowledged at ('s2', 2), where message_received d stands",
    ),
    "its text is another": (
        lambda h, j: j[1].events[1].update(text="else"),
        "replaced: c was acknowledged with another text than stands at ('s2', 2)",
    ),
    "it stands in two journals of its key": (
        lambda h, j: j[1].events[1].update(id="b"),
        "doubled: b stands 2 times in the journals of k",
    ),
    "it was acknowledged at two places": (
        lambda h, j: h.attempts.append(
            Attempt(id="c", key="k", text="c", began=9, ended=9, outcome="accepted", session="s1", seq=9)
        ),
        "moved: c was acknowledged at ('s2', 2) and at ('s1', 9)",
    ),
    "a refused message was kept": (
        lambda h, j: h.attempts.__setitem__(3, Attempt(id="c", key="k", text="c", began=3, ended=3.5, outcome="busy")),
        "kept: c was refused each time and stands in a journal of k",
    ),
    "a later message stands before an earlier": (
        lambda h, j: h.attempts.__setitem__(
            0, Attempt(id="a", key="k", text="a", began=1.9, ended=2, outcome="accepted", session="s1", seq=2)
        ),
        "reordered: a stands before b, which was acknowledged before it was sent",
    ),
    "turns took messages in another order": (
        lambda h, j: (j[0].events[2].update(takes=[9]), j[0].events[9].update(takes=[2])),
        "reordered: s1 took its messages in the order [9, 2]",
    ),
    "a message was never taken": (
        lambda h, j: j[1].events[2].update(takes=[]),
        "unanswered: c at s2 2 was taken 0 times",
    ),
    "a message was taken twice": (
        lambda h, j: j[0].events[9].update(takes=[2, 9]),
        "doubled: a at s1 2 was taken 2 times",
    ),
    "a turn ended twice": (
        lambda h, j: j[0].events[10].update(turn=1),
        "turn: s1 has turn 1 started 1 and ended 2 times",
    ),
    "a call has no result": (
        lambda h, j: j[0].events[5].update(kind="plugin_failed"),
        "call: s1 has call (4, 0) wanted 1 and returned 0 times",
    ),
    "an unrepeatable tool ran twice": (
        lambda h, j: h.stamps.append("s1/4/0"),
        "run twice: the unrepeatable tool ran 2 times for the call s1/4/0",
    ),
    "an unrepeatable tool ran without a record": (
        lambda h, j: h.stamps.append("s1/7/0"),
        "unrecorded: the unrepeatable tool ran for the call s1/7/0, of which no journal has a tool_called",
    ),
    "a tool has a result and did not run": (
        lambda h, j: h.stamps.clear(),
        "not run: the call s1/4/0 has a result, and the tool did not run",
    ),
    "a client missed an event": (
        lambda h, j: h.streams[0].events.pop(5),
        "gap: ana saw 7 of s1 (k) where 6 comes next",
    ),
    "a client never saw the end": (
        lambda h, j: h.streams[1].events.pop(),
        "gap: ben never saw [4] of s2",
    ),
    "a client saw an event twice": (
        lambda h, j: h.streams[0].events.insert(5, h.streams[0].events[4]),
        "doubled: ana saw 5 of s1 (k) where 6 comes next",
    ),
    "clients saw events in another order": (
        lambda h, j: h.streams[1].events.insert(1, h.streams[1].events.pop(2)),
        "gap: ben saw 11 of s1 (k) where 10 comes next",
    ),
    "a client saw another event than the journal has": (
        lambda h, j: h.streams[0].events[6][1].update(text="never"),
        "replaced: ana saw 7 of s1 (k), a model_replied, where model_replied stands",
    ),
    "a session has two successors": (
        lambda h, j: j.append(Journal("s3", "k", [{**j[1].events[0], "session": "s3"}])),
        "split: s1 has 2 successors",
    ),
    "a key begins twice": (
        lambda h, j: j.append(Journal("s3", "k", [event(1, "session_opened", session="s3", key="k")])),
        "split: k has 2 first sessions",
    ),
    "a session that was succeeded is not closed": (
        lambda h, j: j[0].events[13].update(kind="plugin_failed"),
        "unclosed: s1 was succeeded and is not closed",
    ),
    "something stands behind the end of a session": (
        lambda h, j: j[0].events.append(event(15, "note_appended", of=2, path="memory/2026-11-21.md")),
        "reordered: s1 was closed by event 14, and a note_appended stands behind it as 15",
    ),
    "an acknowledged fork is gone": (
        lambda h, j: h.forks.append({"session": "f", "session_id": "s9", "parent": "s1", "parent_seq": 8}),
        "lost: the fork s9 of s1 under f",
    ),
    "the catalog has another end": (
        lambda h, j: h.listed.update(k=("s2", 3)),
        "catalog: k is ('s2', 4) by the journals, and listed as ('s2', 3)",
    ),
    "an attachment is gone": (
        lambda h, j: h.uploads.update({"5feceb66": False}),
        "lost: the attachment 5feceb66 was acknowledged and is not given back",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_the_checker_names_what_is_wrong(harm: str) -> None:
    history, journals = sound()
    do, finding = HARMS[harm]
    do(history, journals)
    assert finding in check(history, journals)


def test_a_power_failure_keeps_what_was_synced_and_may_lose_the_rest(tmp_path: Path) -> None:
    kept, cut, gone = (tmp_path / name for name in ("kept", "cut", "gone"))
    log = tmp_path / "log"
    sizes, there = set(), set()
    for seed in range(40):
        for path in (kept, cut, gone):
            path.write_bytes(b"x" * 100)
        log.write_text(f"C {kept}\nC {cut}\nS 100 {kept}\nS 30 {cut}\nD {tmp_path}\nC {gone}\nS 100 {gone}\n")
        lose_unsynced(log, random.Random(seed))
        assert kept.read_bytes() == b"x" * 100
        assert cut.read_bytes().startswith(b"x" * 30)
        sizes.add(len(cut.read_bytes().rstrip(b"\0")))
        there.add(gone.exists())
    assert len(sizes) > 10
    assert there == {True, False}


def test_twenty_seconds_of_random_faults_violates_no_guarantee() -> None:
    command = [sys.executable, "-m", "tests.torture", "--seed", "15", "--minutes", "0.33"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=15 * 60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
