"""What was said in sessions is found again: by whom it may be, with the way back to it, and never what was not said."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.api.memory.chunks import TOKENS, Chunk
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.sources import transcripts
from plugins.memory.sources.dialogue import JOINED_TOKENS
from plugins.memory.sources.transcripts import (
    IDLE_SECONDS,
    LONGEST_EXCERPT,
    LONGEST_TEXT,
    NEW_BYTES,
    NEW_MESSAGES,
    Transcripts,
)
from plugins.testing.contexts import NOON
from sessions.events.events import (
    CallRef,
    CommandAnswered,
    ContextCompacted,
    Event,
    InstructionsSet,
    MessageReceived,
    ModelReplied,
    RequestedCall,
    SessionClosed,
    SessionOpened,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnStarted,
)
from sessions.events.tokens import estimate
from sessions.files.journal_folder import JournalFolder
from tests.sessions.journal_files import extend_journal
from tests.stored import forked
from tests.stories import lines_of

ANA = Scope(owners=frozenset({"ana"}), private=True)
ID = "20261121-120000-aaaaaa"
PATH = f"sessions/{ID}.jsonl"


class Home:
    """A folder of journals; `write` begins one, `say` goes on with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sessions"
        self.folder.mkdir()
        self.now = datetime.now(UTC).timestamp()
        self.source = Transcripts(JournalFolder(self.folder), lambda: UTC, now=lambda: self.now)

    def write(self, *events: Event, session: str = ID, person: str = "ana", key: str = "main") -> Path:
        path = self.folder / f"{session}.jsonl"
        opened = SessionOpened(format=1, session=session, key=key, person=person)
        path.write_bytes(b"".join(lines_of([opened, *events])))
        return path

    def rest(self) -> None:
        """Let a minute pass in which nothing is said."""
        self.now += 2 * IDLE_SECONDS

    def read(self, session: str = ID) -> list[Chunk]:
        reading = self.source.read(f"sessions/{session}.jsonl", "")
        assert reading
        return list(reading.chunks)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def asked(text: str, *, sender: str = "ana", chat: Any = "private") -> MessageReceived:
    return MessageReceived(id=text[:20], client="t", sender=sender, channel="t", chat=chat, text=text, attachments=())


def taken(*seqs: int) -> TurnStarted:
    return TurnStarted(takes=seqs, provider="p", model="m", window=None, reserve=0)


def answered(text: str, *calls: RequestedCall) -> ModelReplied:
    return ModelReplied(reply=1, model="m", text=text, calls=calls, stop="end", usage=None)


def exchange(first: int, question: str, answer: str, **fields: Any) -> list[Event]:
    """A turn whose message has the seq `first`."""
    return [asked(question, **fields), taken(first), answered(answer), TurnEnded(outcome="replied", millis=1)]


def exchanges(first: int, count: int, text: str = "word ") -> list[Event]:
    turns = (exchange(first + 4 * number, f"question {number}: {text}", "so it is") for number in range(count))
    return [event for turn in turns for event in turn]


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_question_and_its_answer_are_one_chunk_that_says_who_spoke_and_where(home: Home) -> None:
    home.write(*exchange(2, "How large is the pool?\nTell me.", "Thirty connections."), key="work")
    assert home.read() == [
        Chunk(
            path=PATH,
            first=2,
            last=4,
            headings=("work",),
            text="ana: How large is the pool?\nTell me.\nassistant: Thirty connections.",
            day="2026-11-21",
            owner="ana",
            senders=("ana", "assistant"),
            private=True,
        )
    ]


def test_only_what_was_said_is_read(home: Home) -> None:
    call = RequestedCall(id="c", tool="shell", arguments='{"token": "secret-argument"}')
    compacted = ContextCompacted(
        compaction=1, keep_from=3, summary="the summary", by="x", tokens_before=9, tokens_after=1, messages=2
    )
    home.write(
        InstructionsSet(text="the instructions", tools=(), notes=(), parameters={}),
        asked("/status"),
        CommandAnswered(answers=3, answer="the status", failed=False),
        asked("look at it"),
        taken(5),
        answered("", call),
        ToolReturned(call=CallRef(of=7, index=0), outcome="returned", output="the output"),
        answered("It is well."),
        compacted,
        asked("still waiting"),
    )
    (chunk,) = home.read()
    assert (chunk.first, chunk.last, chunk.text) == (5, 9, "ana: look at it\nassistant: It is well.")


def test_what_was_recalled_and_said_again_is_not_read(home: Home) -> None:
    home.write(*exchange(2, "What of it?", "Here:\n[5a7c09e1] memory/a.md#L3-L4:\nIt is green.\n[5a7c09e1] end\nSo."))
    assert [chunk.text for chunk in home.read()] == ["ana: What of it?\nassistant: Here:\nSo."]


def test_a_message_that_waits_is_read_when_a_turn_has_taken_it(home: Home) -> None:
    path = home.write(*exchange(2, "first " * JOINED_TOKENS, "yes"), asked("second"))
    before = home.source.read(PATH, "")
    assert before
    assert [chunk.first for chunk in before.chunks] == [2]
    extend_journal(path, taken(6), answered("third"))
    after = home.source.read(PATH, before.state)
    assert after
    assert [chunk.text for chunk in after.chunks if chunk.first == 6] == ["ana: second\nassistant: third"]


def test_a_message_is_read_when_it_is_answered_or_its_turn_has_ended(home: Home) -> None:
    path = home.write(*exchange(2, "first " * JOINED_TOKENS, "yes"), asked("How large is the pool?"), taken(6))
    before = home.source.read(PATH, "")
    assert before
    assert [chunk.first for chunk in before.chunks] == [2]
    extend_journal(path, answered("", RequestedCall(id="c", tool="read", arguments="{}")))
    waiting = home.source.read(PATH, before.state)
    assert waiting
    assert [chunk.first for chunk in waiting.chunks] == [2]
    extend_journal(path, TurnEnded(outcome="failed", millis=1))
    after = home.source.read(PATH, waiting.state)
    assert after
    assert [chunk.text for chunk in after.chunks][1:] == ["ana: How large is the pool?"]


def test_what_nobody_answered_stands_alone_beside_what_was(home: Home) -> None:
    failed: list[Event] = [asked("How large is the pool?"), taken(6), TurnEnded(outcome="failed", millis=1)]
    home.write(*exchange(2, "thanks", "welcome"), *failed, *exchange(9, "bye", "see you"), *exchange(13, "hi", "hello"))
    assert [chunk.text for chunk in home.read()] == [
        "ana: thanks\nassistant: welcome",
        "ana: How large is the pool?",
        "ana: bye\nassistant: see you\nana: hi\nassistant: hello",
    ]


def test_a_message_that_joined_a_turn_is_answered_by_what_is_said_behind_it(home: Home) -> None:
    turn: list[Event] = [
        asked("one"),
        taken(2),
        asked("two"),
        answered("It is one."),
        TurnJoined(takes=(4,)),
        answered("It is two."),
    ]
    home.write(*turn, TurnEnded(outcome="replied", millis=1))
    assert [chunk.text for chunk in home.read()] == ["ana: one\nana: two\nassistant: It is one.\nassistant: It is two."]


def test_short_exchanges_are_read_together_and_long_answers_in_parts_under_their_question(home: Home) -> None:
    long = exchange(10, "What of the harbour?", "The harbour is old. " * 400)
    home.write(*exchange(2, "thanks", "welcome"), *exchange(6, "bye", "see you"), *long)
    first, *parts = home.read()
    assert first.text == "ana: thanks\nassistant: welcome\nana: bye\nassistant: see you"
    assert len(parts) > 2
    assert all(estimate(part.text) <= TOKENS for part in parts)
    assert {part.headings for part in parts[1:]} == {("main", "What of the harbour?")}
    assert {(part.first, part.last) for part in parts[1:]} == {(12, 12)}


def test_the_day_is_the_persons(home: Home) -> None:
    home.write(*exchange(2, "late", "yes"))
    kiritimati = Transcripts(JournalFolder(home.folder), lambda: ZoneInfo("Pacific/Kiritimati"))
    reading = kiritimati.read(PATH, "")
    assert reading
    assert [chunk.day for chunk in reading.chunks] == ["2026-11-22"]


# --- when it is read --------------------------------------------------------------------------------------------------


def test_a_journal_is_read_on_only_when_that_is_worth_it(home: Home) -> None:
    path = home.write(*exchanges(2, 3))
    assert home.source.list_documents({}).stamps == {}, "three messages, a moment ago"
    home.rest()
    known = dict(home.source.list_documents({}).stamps)
    assert list(known) == [PATH]

    extend_journal(path, *exchanges(14, NEW_MESSAGES // 2 - 1))
    home.now = path.stat().st_mtime
    assert home.source.list_documents(known).stamps == known
    extend_journal(path, *exchanges(14 + 4 * (NEW_MESSAGES // 2 - 1), 1))
    home.now = path.stat().st_mtime
    assert home.source.list_documents(known).stamps != known, "fifty messages"


@pytest.mark.parametrize(
    "event",
    [
        SessionClosed(reason="/new"),
        ContextCompacted(compaction=1, keep_from=2, summary="s", by="x", tokens_before=9, tokens_after=1),
        asked("x" * NEW_BYTES),
    ],
)
def test_what_leaves_the_view_and_what_is_long_is_read_at_once(home: Home, event: Event) -> None:
    home.write(*exchanges(2, 3), event)
    assert list(home.source.list_documents({}).stamps) == [PATH]


def test_only_what_came_since_is_read_again_and_the_journal_is_left_as_it_is(home: Home) -> None:
    path = home.write(*exchanges(2, 300, "a longer question about the harbour " * 20))
    first = home.source.read(PATH, "")
    assert first
    extend_journal(path, *exchanges(1202, 2))
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    with path.open("r+b") as file:  # what was read before is not looked at again
        file.write(b"x" * 1000)
    second = home.source.read(PATH, first.state)
    assert second
    assert second.since == 1198
    assert [chunk.first for chunk in second.chunks] == [1198, 1202]
    path.write_bytes(before[0])
    os.utime(path, ns=(before[1], before[1]))
    path.chmod(0o400)
    assert home.source.read(PATH, "")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


EVENTS = st.lists(
    st.one_of(
        st.builds(lambda words: ("ask", "word " * words), st.integers(1, 300)),
        st.builds(lambda words: ("say", "answer\n" * words), st.integers(0, 500)),
        st.just(("take", "")),
        st.just(("end", "")),
        st.just(("command", "/status")),
    ),
    max_size=60,
)


def told(steps: list[tuple[str, str]]) -> list[Event]:
    """A journal's events behind its first: what waits is taken in its order, commands are answered."""
    events: list[Event] = []
    waiting: list[int] = []
    for what, text in steps:
        seq = len(events) + 2
        if what == "ask":
            events.append(asked(text, chat="group" if len(text) % 3 == 0 else "private"))
            waiting.append(seq)
        elif what == "say":
            events.append(answered(text))
        elif what == "end":
            events.append(TurnEnded(outcome="failed", millis=1))
        elif what == "command":
            events += [asked(text), CommandAnswered(answers=seq, answer="so", failed=False)]
        elif waiting:
            events.append(taken(*waiting))
            waiting = []
    return events


@settings(max_examples=40, deadline=None)
@given(steps=EVENTS, cuts=st.lists(st.floats(0, 1), max_size=6), part=st.sampled_from([3000, 10_000, 1 << 22]))
def test_read_in_pieces_a_journal_gives_what_it_gives_as_a_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], cuts: list[float], part: int
) -> None:
    """Also where it is read while it is written, in the middle of a line."""
    home = Home(tmp_path_factory.mktemp("home"))
    events = told(steps)
    path = home.write(*events)
    content = path.read_bytes()
    opened = content.index(b"\n") + 1
    whole = home.read()

    kept: list[Chunk] = []
    state = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcripts, "READ_BYTES", part)
        for cut in [*sorted(cuts), 1.0]:
            path.write_bytes(content[: opened + round(cut * (len(content) - opened))])
            more = True
            while more:
                reading = home.source.read(PATH, state)
                assert reading
                kept = [chunk for chunk in kept if chunk.first < reading.since] + list(reading.chunks)
                state, more = reading.state, reading.more
    assert kept == whole


# --- journals that are not as they were -------------------------------------------------------------------------------


def test_a_damaged_journal_is_read_up_to_the_damage_and_says_so(home: Home) -> None:
    path = home.write(*exchanges(2, 40))
    path.write_bytes(path.read_bytes().replace(b"question 20", b"question 99"))
    home.rest()
    assert max(chunk.last for chunk in home.read()) == 80
    assert home.source.list_documents({}).remarks == (
        "One session is damaged and searched only as far as the journal is whole; `exuvia sessions verify` says more.",
    )


def test_what_is_no_journal_is_passed_over_with_a_remark(home: Home) -> None:
    (home.folder / f"{ID}.jsonl").write_text("nonsense\n")
    (home.folder / "notes.txt").write_text("nonsense\n")
    (home.folder / "empty.jsonl").touch()
    (home.folder / "linked.jsonl").symlink_to(home.folder / "notes.txt")
    home.rest()
    assert list(home.source.list_documents({}).stamps) == [PATH]
    assert home.source.read(PATH, "") is None
    assert len(home.source.list_documents({}).remarks) == 1


def test_a_torn_tail_is_no_damage(home: Home) -> None:
    path = home.write(*exchanges(2, 2))
    path.write_bytes(path.read_bytes()[:-20])
    assert [chunk.first for chunk in home.read()] == [2]
    assert home.source.list_documents({}).remarks == ()


def test_a_journal_that_was_rewritten_is_read_anew(home: Home) -> None:
    path = home.write(*exchanges(2, 40))
    first = home.source.read(PATH, "")
    assert first
    path.unlink()
    home.write(*exchange(2, "something else " * 500, "yes"))
    second = home.source.read(PATH, first.state)
    assert second
    assert second.since == 1
    assert "something else" in second.chunks[0].text


def test_what_a_fork_copied_is_read_in_its_parent_alone(home: Home) -> None:
    path = home.write(*exchange(2, "In the parent", "yes"))
    copied = forked(path, "20261122-120000-bbbbbb", "other", NOON)
    extend_journal(path.with_name(f"{copied.session}.jsonl"), *exchange(7, "In the fork", "no"))
    (chunk,) = home.read(copied.session)
    assert (chunk.first, chunk.headings, chunk.owner) == (7, ("other",), "ana")
    path.unlink()
    assert "In the parent" in home.read(copied.session)[0].text, "nobody else has it now"


def test_a_message_that_waited_when_a_session_was_forked_hides_nothing_in_a_fork_whose_parent_is_gone(home: Home) -> None:
    first, *rest = exchange(2, "In the parent", "yes")
    path = home.write(first, rest[0], asked("later"), *rest[1:], taken(4), TurnEnded(outcome="replied", millis=1))
    copied = forked(path, "20261122-120000-bbbbbb", "other", NOON, at=6)
    extend_journal(path.with_name(f"{copied.session}.jsonl"), *exchange(8, "In the fork", "no"))
    path.unlink()
    text = "".join(chunk.text for chunk in home.read(copied.session))
    assert [said in text for said in ("In the parent", "In the fork", "later")] == [True, True, False]


def test_a_fork_that_was_copied_in_parts_is_read_behind_its_own_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "READ_BYTES", 3000)
    path = home.write(*exchanges(2, 40))
    copied = forked(path, "20261122-120000-bbbbbb", "other", NOON)
    journal = path.with_name(f"{copied.session}.jsonl")
    extend_journal(journal, *exchange(copied.parent_seq + 2, "In the fork", "no"))
    with MemoryIndex(home.folder.parent / "memory.sqlite") as index:
        home.rest()
        refresh(index, [home.source])
        found = index.chunks(range(999))
    assert [chunk.first for chunk in found.values() if chunk.path.endswith("bbbbbb.jsonl")] == [copied.parent_seq + 2]
    assert sum("question 3:" in chunk.text for chunk in found.values()) == 1


# --- who may find it --------------------------------------------------------------------------------------------------


def test_each_person_finds_their_own_sessions_and_in_a_group_only_what_was_said_in_one(home: Home) -> None:
    home.write(*exchange(2, "tea in private", "yes"), *exchange(6, "tea in the group", "yes", chat="group"))
    home.write(*exchange(2, "tea of bo", "yes", sender="bo"), session="20261121-120000-bbbbbb", person="bo")
    group = Scope(owners=frozenset({"ana"}), private=False)
    home.rest()
    with MemoryIndex(home.folder.parent / "memory.sqlite") as index:
        refresh(index, [home.source])

        def found(scope: Scope) -> set[str]:
            chunks = index.chunks(index.keywords(["tea"], 9, scope), scope).values()
            return {chunk.text.split("\n")[0] for chunk in chunks}

        assert found(EVERYTHING) == {"ana: tea in private", "ana: tea in the group", "bo: tea of bo"}
        assert found(ANA) == {"ana: tea in private", "ana: tea in the group"}
        assert found(group) == {"ana: tea in the group"}
    assert home.source.excerpt(PATH, 1, 99, group) == (
        "[6] 2026-11-21 12:00 ana: tea in the group\n[8] 2026-11-21 12:00 assistant: yes"
    )
    assert home.source.excerpt("sessions/20261121-120000-bbbbbb.jsonl", 1, 99, ANA) == ""
    assert home.source.excerpt("sessions/20261121-120000-bbbbbb.jsonl", 1, 99, EVERYTHING)


# --- reading around it ------------------------------------------------------------------------------------------------


def test_around_a_seq_the_dialogue_can_be_read(home: Home) -> None:
    home.write(*exchanges(2, 50))
    assert home.source.excerpt(PATH, 102, 5, ANA) == (
        "[102] 2026-11-21 12:00 ana: question 25: word\n[104] 2026-11-21 12:00 assistant: so it is\n"
        "[106] 2026-11-21 12:00 ana: question 26: word"
    )


def test_an_excerpt_is_bounded_and_says_where_it_goes_on(home: Home) -> None:
    long = random.Random(1).randbytes(6000).hex()
    home.write(*[event for number in range(20) for event in exchange(2 + 4 * number, long, long)])
    shown = home.source.excerpt(PATH, 1, 400, ANA)
    assert shown
    assert len(shown) < LONGEST_EXCERPT + 2 * LONGEST_TEXT
    *_, last = shown.split("\n")
    assert last.startswith("[Continues at ")


@pytest.mark.parametrize(
    "path", ["sessions/../token.jsonl", "sessions/a/b.jsonl", "MEMORY.md", "sessions/x.md", "sessions/"]
)
def test_a_path_that_no_session_has_is_none_of_this_source(home: Home, path: str) -> None:
    assert home.source.excerpt(path, 1, 9, EVERYTHING) is None
    assert home.source.read(path, "") is None


def test_a_session_that_is_not_there_is_empty(home: Home) -> None:
    assert home.source.excerpt("sessions/20261121-120000-cccccc.jsonl", 1, 9, EVERYTHING) == ""


def test_what_a_fork_copied_can_be_read_there_too(home: Home) -> None:
    copied = forked(home.write(*exchange(2, "In the parent", "yes")), "20261122-120000-bbbbbb", "other", NOON)
    assert home.source.excerpt(f"sessions/{copied.session}.jsonl", 2, 1, ANA) == "[2] 2026-11-21 12:00 ana: In the parent"
