"""Invariants of the log of a long session."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from typing import Any

from benchmarks.long_session import evolved, hashes_of_the_log
from benchmarks.stage import Stage
from tests.docs.verifier import verify
from tests.docs.view import request_by_the_page

Line = dict[str, Any]


async def talk(on: Stage, turns: int) -> None:
    """Run turns, with questions of a few words to a few thousand characters."""
    chance = random.Random(2)
    for turn in range(turns):
        await on.say(f"Turn {turn}, about CRAB-{turn}: " + "what of it? " * chance.choice((1, 1, 1, 3, 9, 300)), f"t{turn}")
    await on.until(lambda: not on.recorder.transcript.cycle.owed)


def lines_of(on: Stage) -> list[Line]:
    """Return the journal, line by line."""
    return [json.loads(line) for line in on.log.written]


def assert_sound(on: Stage) -> None:
    """Assert the invariants of every session, whatever its model and tools did."""
    lines = lines_of(on)
    assert verify(b"".join(on.log.written)) == (len(lines), 0, None)
    assert_each_turn_ends_once(lines)
    assert_one_flush_before_each_compaction(lines)
    assert hashes_of_the_log(on.log.written) == [line["sha256"] for line in lines if is_request(line)]
    assert not on.recorder.transcript.cycle.open
    assert evolved(on.log.written).view == on.recorder.transcript.view


def assert_each_turn_ends_once(lines: list[Line]) -> None:
    """Assert that each message belongs to one turn, and each turn ends."""
    taken = Counter(seq for line in lines for seq in line.get("takes", ()))
    assert taken == Counter(line["seq"] for line in lines if line["kind"] == "message_received")
    assert sum(line["kind"] == "turn_started" for line in lines) == sum(line["kind"] == "turn_ended" for line in lines)


def assert_one_flush_before_each_compaction(lines: list[Line]) -> None:
    """Assert that within a cycle nothing is removed without a flush, and nothing is flushed twice."""
    covered = 0
    for line in lines:
        if line["kind"] == "memory_flushed":
            assert line["covers_to"] > covered or line["outcome"] == "nothing", line["seq"]
            assert line["covers_to"] >= covered, line["seq"]
            covered = line["covers_to"]
        elif line["kind"] == "context_compacted":
            assert covered >= line["keep_from"] - 1, line["seq"]


def is_request(line: Line) -> bool:
    """Return True for a request of the conversation itself."""
    return (line["kind"], line.get("purpose")) == ("request_sent", "answer")


def hash_by_the_page(lines: list[Line]) -> str:
    """Return the hash of a request sent after these lines, computed as docs/events.md describes."""
    text = json.dumps(request_by_the_page(lines), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
