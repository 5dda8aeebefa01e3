"""The checker: which promises a history breaks. Each finding is one sentence that begins with what happened.

`lost`, `doubled`, `moved`, `reordered`: messages that were acknowledged. `damaged`, `epoch`: logs. `overlap`, `unanswered`:
turns. `gap`, `replaced`: subscribers. `run twice`: a tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from benchmarks.cluster.history import Attempt, History, SessionLog, Stream, digest

SHOWN = 40
"""Findings of one check that are shown."""

Logs = Mapping[str, SessionLog]


def check(history: History, logs: list[SessionLog]) -> list[str]:
    """Return what is wrong with a history whose clients have their answers and whose gateways were stopped."""
    by_session = {log.session: log for log in logs}
    checks = (
        acknowledged(history, by_session),
        doubled(logs),
        reordered(history, by_session),
        dense(logs),
        epochs(logs),
        turns(logs),
        answered(logs),
        tools(history, by_session),
        streams(history, by_session),
        successions(logs),
    )
    return [*history.findings, *chain.from_iterable(list(found)[:SHOWN] for found in checks)]


def acknowledged(history: History, logs: Logs) -> Iterator[str]:
    """Every acknowledged message stands where it was acknowledged, with its text."""
    places: dict[tuple[str, str], tuple[str, int]] = {}
    for attempt in history.attempts:
        if attempt.outcome != "accepted":
            continue
        place = attempt.session, attempt.seq
        if (first := places.setdefault((attempt.key, attempt.id), place)) != place:
            yield f"moved: {attempt.id} was acknowledged at {first} and at {place}"
        log = logs.get(attempt.session)
        event = log.at(attempt.seq) if log else None
        if event is None:
            yield f"lost: {attempt.id} was acknowledged at {place}, where nothing stands"
        elif (event["kind"], event.get("id"), event.get("text")) != ("message_received", attempt.id, attempt.text):
            yield f"lost: {attempt.id} was acknowledged at {place}, where {event['kind']} {event.get('id', '')} stands"
        elif log and log.key != attempt.key:
            yield f"lost: {attempt.id} of {attempt.key} was acknowledged in a session of {log.key}"


def doubled(logs: list[SessionLog]) -> Iterator[str]:
    """Every message stands once in the logs of its key."""
    received = ((log.key, event["id"]) for log in logs for event in log.events if event["kind"] == "message_received")
    for (key, message), count in Counter(received).items():
        if count > 1:
            yield f"doubled: {message} stands {count} times in the logs of {key}"


def reordered(history: History, logs: Logs) -> Iterator[str]:
    """A message that was first sent after another of its key was acknowledged has a later place."""
    first: dict[tuple[str, str], Attempt] = {}
    known: dict[tuple[str, str], Attempt] = {}
    for attempt in sorted(history.attempts, key=lambda attempt: attempt.began):
        first.setdefault((attempt.key, attempt.id), attempt)
    for attempt in sorted(history.attempts, key=lambda attempt: attempt.ended):
        if attempt.outcome == "accepted":
            known.setdefault((attempt.key, attempt.id), attempt)
    steps = [(first[name].began, 1, name) for name in known] + [(attempt.ended, 0, name) for name, attempt in known.items()]
    last: dict[str, tuple[tuple[int, int], str]] = {}
    for _, begins, (key, message) in sorted(steps):
        attempt = known[key, message]
        place = _generation(logs, attempt.session), attempt.seq
        if begins:
            if key in last and place < last[key][0]:
                yield f"reordered: {message} stands before {last[key][1]}, which was acknowledged before it was sent"
        elif key not in last or place > last[key][0]:
            last[key] = place, message


def dense(logs: list[SessionLog]) -> Iterator[str]:
    """Every log has the events 1 to its head, each with the right sum."""
    for log in logs:
        if log.damage:
            yield f"damaged: {log.session} {log.damage}"
        if len(log.events) != log.head:
            yield f"damaged: {log.session} has {len(log.events)} events, and its head is {log.head}"


def epochs(logs: list[SessionLog]) -> Iterator[str]:
    """Each epoch of a log is written by who began it, none comes after a later one, and the appends follow each other."""
    for log in logs:
        writers: dict[int, str] = {}
        newest, head = -1, None
        for append in log.appends:
            where = f"{append.first} to {append.last} of {log.session}, by {append.writer} in epoch {append.epoch}"
            if append.epoch < newest:
                yield f"epoch: {where}, came after epoch {newest}"
            if head is not None and append.first != head + 1:
                yield f"epoch: {where}, came after event {head}"
            if (writer := writers.setdefault(append.epoch, append.writer)) != append.writer:
                yield f"epoch: {where}, whose writer is {writer}"
            newest, head = max(newest, append.epoch), append.last


def turns(logs: list[SessionLog]) -> Iterator[str]:
    """Turns do not overlap; each ends once, and each call of a model has one result."""
    for log in logs:
        running: int | None = None
        ended: set[int] = set()
        for event in log.events:
            turn = event["turn"]
            if event["kind"] == "turn_started":
                if running is not None:
                    yield f"overlap: turn {turn} of {log.session} began at {event['seq']}, while turn {running} was running"
                running = turn
            elif event["kind"] == "turn_ended":
                if turn in ended or turn != running:
                    yield f"overlap: turn {turn} of {log.session} ended at {event['seq']}, while {running} was running"
                ended.add(turn)
                running = None
        if running is not None:
            yield f"unanswered: turn {running} of {log.session} has not ended"
        yield from _calls(log)


def answered(logs: list[SessionLog]) -> Iterator[str]:
    """Every message is taken by one turn, in the order of arrival, and every turn that replied has one answer."""
    for log in logs:
        taken = [seq for event in log.events if event["kind"] in ("turn_started", "turn_joined") for seq in event["takes"]]
        commands = [event["answers"] for event in log.events if event["kind"] == "command_answered"]
        if taken != sorted(taken):
            yield f"reordered: {log.session} took its messages in the order {taken}"
        done = Counter(taken + commands)
        for event in log.events:
            if event["kind"] == "message_received" and (count := done[event["seq"]]) != 1:
                what = "doubled" if count else "unanswered"
                yield f"{what}: {event['id']}, {event['seq']} of {log.session}, was taken {count} times"
        replied = (e["turn"] for e in log.events if e["kind"] == "turn_ended" and e["outcome"] == "replied")
        answers = Counter(e["turn"] for e in log.events if e["kind"] == "model_replied" and not e["calls"])
        for turn in replied:
            if answers[turn] != 1:
                what = "doubled" if answers[turn] else "unanswered"
                yield f"{what}: turn {turn} of {log.session} has {answers[turn]} answers"


def tools(history: History, logs: Logs) -> Iterator[str]:
    """The unrepeatable tool acted at most once for a call, only for a recorded one, and for each that returned."""
    for label, count in history.effects.items():
        if count > 1:
            yield f"run twice: the unrepeatable tool acted {count} times for the call {label}"
    called = {label: kind for log in logs.values() for label, kind in _unrepeatable(log)}
    for label in history.effects.keys() - called.keys():
        yield f"lost: the unrepeatable tool acted for the call {label}, which no log has"
    for label, outcome in called.items():
        if outcome == "returned" and not history.effects[label]:
            yield f"lost: the call {label} has a result, and the tool did not act"


def streams(history: History, logs: Logs) -> Iterator[str]:
    """Every subscriber saw the events in their order, without gaps, and as they stand in the log."""
    digests = {log.session: [digest(event) for event in log.events] for log in logs.values()}
    for stream in history.streams:
        yield from _stream(stream, digests)


def successions(logs: list[SessionLog]) -> Iterator[str]:
    """Every key has one line of sessions."""
    for session, count in Counter(log.succeeds for log in logs if log.succeeds).items():
        if count > 1:
            yield f"doubled: {session} has {count} successors"
    for key, count in Counter(log.key for log in logs if log.succeeds is None).items():
        if count > 1:
            yield f"doubled: {key} has {count} first sessions"


def _stream(stream: Stream, digests: Mapping[str, list[bytes]]) -> Iterator[str]:
    last = {stream.session: stream.after} if stream.session else {}
    begun = bool(stream.session)
    for session, seq, seen in stream.events:
        expected = last[session] + 1 if session in last else 1 if begun else seq
        begun = True
        where = f"{stream.client} saw {seq} of {session} ({stream.key})"
        if seq != expected:
            yield f"{'gap' if seq > expected else 'doubled'}: {where} where {expected} comes next"
        last[session] = seq
        stored = digests.get(session, [])
        if seq > len(stored):
            yield f"lost: {where}, which is not there"
        elif stored[seq - 1] != seen:
            yield f"replaced: {where}, which stands there with another content"


def _calls(log: SessionLog) -> Iterator[str]:
    wanted = Counter(
        (event["seq"], index)
        for event in log.events
        if event["kind"] == "model_replied"
        for index in range(len(event["calls"]))
    )
    returned = Counter((e["call"]["of"], e["call"]["index"]) for e in log.events if e["kind"] == "tool_returned")
    for call in wanted | returned:
        if (wanted[call], returned[call]) != (1, 1):
            what = "doubled" if returned[call] > wanted[call] else "unanswered"
            yield f"{what}: the call {call} of {log.session} was wanted {wanted[call]} and has {returned[call]} results"


def _unrepeatable(log: SessionLog) -> Iterator[tuple[str, str]]:
    """Yield the label and the outcome of each call of an unrepeatable tool."""
    outcomes = {
        (event["call"]["of"], event["call"]["index"]): event["outcome"]
        for event in log.events
        if event["kind"] == "tool_returned"
    }
    for event in log.events:
        if event["kind"] == "tool_called" and not event["repeatable"]:
            call = event["call"]["of"], event["call"]["index"]
            yield f"{log.session}/{call[0]}/{call[1]}", outcomes.get(call, "")


def _generation(logs: Logs, session: str) -> int:
    """Count the sessions of a key before this one."""
    count = 0
    while (before := logs[session].succeeds if session in logs else None) is not None:
        session, count = before, count + 1
    return count
