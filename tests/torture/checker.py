"""The checker: which promises a history breaks. Each finding is one sentence that begins with what happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from tests.torture.history import Attempt, Event, History, Journal, Stream

SHOWN = 40
"""Findings of one check that are shown."""


def check(history: History, journals: list[Journal]) -> list[str]:
    """Return what is wrong with a history whose last gateway has answered everything and was stopped."""
    by_session = {journal.session: journal for journal in journals}
    checks = (
        acknowledged(history, by_session),
        doubled(journals),
        reordered(history, by_session),
        answered(journals),
        turns(journals),
        tools(history, by_session),
        streams(history, by_session),
        followed(history, by_session),
        successions(journals),
        closings(journals),
        forks(history, by_session),
        catalog(history, journals),
        (
            f"lost: the attachment {sha256} was acknowledged and is not given back"
            for sha256, kept in history.uploads.items()
            if not kept
        ),
    )
    return [*history.findings, *chain.from_iterable(list(found)[:SHOWN] for found in checks)]


def acknowledged(history: History, journals: dict[str, Journal]) -> Iterator[str]:
    """Every acknowledged message stands where it was acknowledged, with its text; a refused one stands nowhere."""
    places: dict[tuple[str, str], tuple[str, int]] = {}
    outcomes: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for attempt in history.attempts:
        outcomes[attempt.key, attempt.id].add(attempt.outcome)
        if attempt.outcome != "accepted":
            continue
        place = attempt.session, attempt.seq
        if places.setdefault((attempt.key, attempt.id), place) != place:
            yield f"moved: {attempt.id} was acknowledged at {places[attempt.key, attempt.id]} and at {place}"
        event = event_at(journals, *place)
        if event is None:
            yield f"lost: {attempt.id} was acknowledged at {place}, which is not there"
        elif (event["kind"], event.get("id")) != ("message_received", attempt.id):
            yield f"lost: {attempt.id} was acknowledged at {place}, where {event['kind']} {event.get('id', '')} stands"
        elif event["text"] != attempt.text:
            yield f"replaced: {attempt.id} was acknowledged with another text than stands at {place}"
        elif journals[attempt.session].key != attempt.key:
            yield f"misplaced: {attempt.id} of {attempt.key} stands in {attempt.session} of {journals[attempt.session].key}"
    received = {(journal.key, event["id"]) for journal in journals.values() for event in received_in(journal)}
    for name, codes in outcomes.items():
        if name in received and codes <= {"busy", "bad_request", "conflict"}:
            yield f"kept: {name[1]} was refused each time and stands in a journal of {name[0]}"


def doubled(journals: list[Journal]) -> Iterator[str]:
    """Every message stands in one journal of its key, once."""
    counts = Counter((journal.key, event["id"]) for journal in journals for event in received_in(journal))
    for (key, id_), count in counts.items():
        if count > 1:
            yield f"doubled: {id_} stands {count} times in the journals of {key}"


def reordered(history: History, journals: dict[str, Journal]) -> Iterator[str]:
    """A message that was first sent after another of its key was acknowledged stands behind it."""
    first: dict[tuple[str, str], Attempt] = {}
    known: dict[tuple[str, str], Attempt] = {}
    for attempt in sorted(history.attempts, key=lambda attempt: attempt.began):
        first.setdefault((attempt.key, attempt.id), attempt)
    for attempt in sorted(history.attempts, key=lambda attempt: attempt.ended):
        if attempt.outcome == "accepted" and attempt.session in journals:
            known.setdefault((attempt.key, attempt.id), attempt)
    steps = [(first[name].began, 1, name) for name in known] + [(attempt.ended, 0, name) for name, attempt in known.items()]
    last: dict[str, tuple[tuple[int, int], str]] = {}
    for _, begins, (key, id_) in sorted(steps):
        attempt = known[key, id_]
        place = generation(journals, attempt.session), attempt.seq
        if begins:
            if key in last and place < last[key][0]:
                yield f"reordered: {id_} stands before {last[key][1]}, which was acknowledged before it was sent"
        elif key not in last or place > last[key][0]:
            last[key] = place, id_


def answered(journals: list[Journal]) -> Iterator[str]:
    """Every message is taken by one turn, every command answered once, and in the order in which they came."""
    for journal in journals:
        taken = taken_in(journal)
        done = Counter(taken + [event["answers"] for event in journal.events if event["kind"] == "command_answered"])
        own = taken_in(journal, after=journal.copied)
        if own != sorted(own):
            yield f"reordered: {journal.session} took its messages in the order {own}"
        for event in journal.events:
            if event["kind"] != "message_received" or event["seq"] in journal.left:
                continue
            if (count := done[event["seq"]]) != 1:
                what = "doubled" if count else "unanswered"
                yield f"{what}: {event['id']} at {journal.session} {event['seq']} was taken {count} times"


def turns(journals: list[Journal]) -> Iterator[str]:
    """Every turn that started ended once, and every call of a model's has one result."""
    for journal in journals:
        started = Counter(event["turn"] for event in journal.events if event["kind"] == "turn_started")
        ended = Counter(event["turn"] for event in journal.events if event["kind"] == "turn_ended")
        for turn in started | ended:
            if (started[turn], ended[turn]) != (1, 1):
                yield f"turn: {journal.session} has turn {turn} started {started[turn]} and ended {ended[turn]} times"
        wanted = Counter(
            (event["seq"], index)
            for event in journal.events
            if event["kind"] == "model_replied"
            for index in range(len(event["calls"]))
        )
        returned = Counter((e["call"]["of"], e["call"]["index"]) for e in journal.events if e["kind"] == "tool_returned")
        for call in wanted | returned:
            if (wanted[call], returned[call]) != (1, 1):
                yield f"call: {journal.session} has call {call} wanted {wanted[call]} and returned {returned[call]} times"


def tools(history: History, journals: dict[str, Journal]) -> Iterator[str]:
    """An unrepeatable tool ran at most once for a call, and only for one that stands in the journal."""
    for stamp, count in Counter(history.stamps).items():
        if count > 1:
            yield f"run twice: the unrepeatable tool ran {count} times for the call {stamp}"
        session, of, index = stamp.split("/")
        events = journals[session].events if session in journals else []
        called = [e for e in events if e["kind"] == "tool_called" and e["call"] == {"of": int(of), "index": int(index)}]
        if not called:
            yield f"unrecorded: the unrepeatable tool ran for the call {stamp}, of which no journal has a tool_called"
    stamped = set(history.stamps)
    for journal in journals.values():
        unrepeatable = {str(e["call"]) for e in journal.events if e["kind"] == "tool_called" and not e["repeatable"]}
        for event in journal.events[journal.copied :]:
            if event["kind"] == "tool_returned" and event["outcome"] == "returned" and str(event["call"]) in unrepeatable:
                label = f"{journal.session}/{event['call']['of']}/{event['call']['index']}"
                if label not in stamped:
                    yield f"not run: the call {label} has a result, and the tool did not run"


def streams(history: History, journals: dict[str, Journal]) -> Iterator[str]:
    """Every client saw the events of a session in their order, without gaps, and as they stand in its journal."""
    for stream in history.streams:
        yield from _stream(stream, journals)


def _stream(stream: Stream, journals: dict[str, Journal]) -> Iterator[str]:
    last = {stream.session: stream.after} if stream.session else {}
    begun = bool(stream.session)
    for session, event in stream.events:
        seq = event["seq"]
        expected = last[session] + 1 if session in last else 1 if begun else seq
        begun = True
        where = f"{stream.client} saw {seq} of {session} ({stream.key})"
        if seq != expected:
            yield f"{'gap' if seq > expected else 'doubled'}: {where} where {expected} comes next"
        last[session] = seq
        stored = event_at(journals, session, seq)
        if stored is None:
            yield f"lost: {where}, a {event['kind']}, which is not there"
        elif stored != event:
            yield f"replaced: {where}, a {event['kind']}, where {stored['kind']} stands"


def followed(history: History, journals: dict[str, Journal]) -> Iterator[str]:
    """A client that followed a session saw all of it from its first event on, as far as it was to follow."""
    seen: dict[tuple[str, str], set[int]] = defaultdict(set)
    for stream in history.streams:
        for session, event in stream.events:
            seen[stream.client, session].add(event["seq"])
    for (client, session), first in history.followed.items():
        if missing := {*range(first, history.heads.get(session, 0) + 1)} - seen[client, session]:
            yield f"gap: {client} never saw {sorted(missing)[:10]} of {session}"


def successions(journals: list[Journal]) -> Iterator[str]:
    """Every key has one line of sessions."""
    for session, count in Counter(journal.succeeds for journal in journals if journal.succeeds).items():
        if count > 1:
            yield f"split: {session} has {count} successors"
    for key, count in Counter(journal.key for journal in journals if journal.succeeds is None).items():
        if count > 1:
            yield f"split: {key} has {count} first sessions"


def closings(journals: list[Journal]) -> Iterator[str]:
    """A session that another has succeeded is closed, and nothing stands behind that."""
    succeeded = {journal.succeeds for journal in journals}
    for journal in journals:
        closed = [event["seq"] for event in journal.events if event["kind"] == "session_closed"]
        if journal.session in succeeded and not closed:
            yield f"unclosed: {journal.session} was succeeded and is not closed"
        if closed and closed[0] != (last := len(journal.events)):
            kind = journal.events[-1]["kind"]
            yield f"reordered: {journal.session} was closed by event {closed[0]}, and a {kind} stands behind it as {last}"


def forks(history: History, journals: dict[str, Journal]) -> Iterator[str]:
    """Every fork that was acknowledged is there, and has the events of its parent."""
    for forked in history.forks:
        journal, parent = journals.get(forked["session_id"]), journals.get(forked["parent"])
        if journal is None or journal.key != forked["session"]:
            yield f"lost: the fork {forked['session_id']} of {forked['parent']} under {forked['session']}"
        elif parent is None or parent.events[: forked["parent_seq"]] != journal.events[: forked["parent_seq"]]:
            yield f"replaced: the fork {forked['session_id']} has other events than {forked['parent']}"


def catalog(history: History, journals: list[Journal]) -> Iterator[str]:
    """The catalog names the newest session of each key, and its head."""
    succeeded = {journal.succeeds for journal in journals}
    newest = {j.key: (j.session, len(j.events)) for j in journals if j.session not in succeeded}
    for key in newest | history.listed:
        if newest.get(key) != history.listed.get(key):
            yield f"catalog: {key} is {newest.get(key)} by the journals, and listed as {history.listed.get(key)}"


def received_in(journal: Journal) -> list[Event]:
    """Return the messages that a journal received itself."""
    return [event for event in journal.events[journal.copied :] if event["kind"] == "message_received"]


def taken_in(journal: Journal, after: int = 0) -> list[int]:
    """Return the messages that turns took, in their order."""
    events = (event for event in journal.events[after:] if event["kind"] in ("turn_started", "turn_joined"))
    return [seq for event in events for seq in event["takes"]]


def event_at(journals: dict[str, Journal], session: str, seq: int) -> Event | None:
    """Return an event, or None if there is none."""
    journal = journals.get(session)
    return journal.events[seq - 1] if journal is not None and 0 < seq <= len(journal.events) else None


def generation(journals: dict[str, Journal], session: str) -> int:
    """Count the sessions of a key before this one."""
    count = 0
    while (before := journals[session].succeeds if session in journals else None) is not None:
        session, count = before, count + 1
    return count


def is_finished(journals: list[Journal]) -> bool:
    """Return True if every message is answered, every turn has ended, and every session that was succeeded is closed."""
    return not any(next(check, None) for check in (answered(journals), turns(journals), closings(journals)))
