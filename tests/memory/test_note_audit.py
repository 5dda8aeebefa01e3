"""The audit of notes: duplicates, recalled text that was written back, secrets, and notes nobody uses."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cli.memory.audit import audit_notes
from gateway.cli.options import Invocation
from gateway.support.home import Home
from plugins.api.memory.chunks import Chunk, chunks_of
from plugins.memory.note_audit import ALIKE, WORDS, Finding, findings, likely_secrets, used_documents
from plugins.support.text.words import word_set
from plugins.testing.contexts import NOON
from sessions.events.events import (
    CallRef,
    Event,
    MemoryRecalled,
    ModelReplied,
    RecalledHit,
    RequestedCall,
    SessionOpened,
    ToolReturned,
    TurnEnded,
)
from sessions.files.journal_folder import JournalFolder
from sessions.state.view import recalled_message
from tests.stories import lines_of

LATE = NOON + timedelta(days=30)
HARBOUR = "The harbour crane was bought in Rotterdam in March and is serviced by Maria every second week.\n"


def audited(notes: dict[str, str]) -> list[Finding]:
    return findings(notes, [chunk for path, text in notes.items() for chunk in chunks_of(path, text)])


# --- secrets ----------------------------------------------------------------------------------------------------------


def made_up(*sizes: int) -> str:
    """Letters and digits that were no key anywhere."""
    chance = random.Random(sum(sizes))
    return "".join(chance.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(sum(sizes)))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("-----BEGIN OPENSSH PRIVATE " + "KEY-----", "private key"),
        ("the key AKIA" + "ABCDEFGH23456789 of the bucket", "AWS access key"),
        (f"`ghp_{made_up(36)}`", "GitHub token"),
        (f"sk-ant-{made_up(40)}", "model provider's key"),
        (f"AIza{made_up(35)}", "Google API key"),
        (f"xoxb-{made_up(24)}", "Slack token"),
        (f"eyJ{made_up(20)}.eyJ{made_up(30)}.{made_up(30)}", "JSON web token"),
        ("postgres://ana:tr0ub4dor@db.example/x", "password in an address"),
        ("- **Password:** `tr0ub4dor&3`", "password"),
        ("Das Passwort ist geheim123", "password"),
        ("密码是：tr0ub4dor3", "password"),
        ("api_key = 9f8a7c6b5d4e3f2a", "password"),
    ],
)
def test_a_likely_secret_is_named_by_what_it_looks_like_and_never_shown(line: str, name: str) -> None:
    [finding] = audited({"MEMORY.md": f"# Keys\n\n{line}\n"})
    assert finding == Finding(kind="secret", places=("MEMORY.md#L3-L3",), sentence=f"This looks like a secret ({name}).")


@pytest.mark.parametrize(
    "line",
    [
        "The password is required at the door.",
        "password: env:DATABASE_PASSWORD",
        "api_key = <your key here>",
        "api key: ********",
        "password: see the vault",
        "She studies risk-management-and-everything at school.",
        "https://example.org/a:b@c",
        "The commit is 8199be6f2c1d4e5f8199be6f2c1d4e5f8199be6f.",
    ],
)
def test_what_only_speaks_of_secrets_is_none(line: str) -> None:
    assert list(likely_secrets(line)) == []


# --- repetition -------------------------------------------------------------------------------------------------------


def test_sections_that_say_nearly_the_same_are_one_finding_with_all_their_places() -> None:
    notes = {
        "memory/a.md": f"# Crane\n\n{HARBOUR}",
        "memory/b.md": f"Something else, entirely unlike the rest.\n\n## The crane\n\n{HARBOUR.replace('March', 'April')}",
        "memory/c.md": "# Garden\n\nThe irrigation of the garden needs a pump, two hoses and someone who comes on Sunday.\n",
    }
    assert audited(notes) == [
        Finding(
            kind="duplicate",
            places=("memory/a.md#L3-L3", "memory/b.md#L5-L5"),
            sentence="2 sections say nearly the same.",
        )
    ]


def test_the_same_section_three_times_is_a_loop() -> None:
    [finding] = audited({"memory/2026-11-21.md": f"## Flush\n\n{HARBOUR}\n" * 3})
    assert (finding.kind, finding.sentence, len(finding.places)) == ("loop", "The same section occurs 3 times.", 3)


def test_what_was_recalled_and_written_down_again_is_a_loop() -> None:
    hit = RecalledHit(path="memory/a.md", lines=(3, 4), digest="d", text="Rust.", score=1.0)
    shown = recalled_message(MemoryRecalled(query="q", hits=(hit,), mark="5a7c09e1", millis=1)).text
    returned = '{"results":[{"citation":"memory/a.md#L3-L4","score":0.5,"text":"Rust."}]}'
    [recalled, result] = audited({"memory/b.md": f"# Day\n\n{shown}\n", "memory/c.md": f"{returned}\n"})
    assert (recalled.kind, recalled.places) == ("loop", ("memory/b.md#L3-L7",))
    assert (result.kind, result.places) == ("loop", ("memory/c.md#L1-L1",))


def test_the_parts_of_one_long_section_are_not_compared() -> None:
    line = " ".join(f"word{number}" for number in range(12)) + "\n"
    assert audited({"memory/a.md": "# Long\n\n" + line * 30}) == []


def test_short_sections_may_stand_in_many_notes() -> None:
    assert audited({f"memory/{name}.md": "# Open\n\nNothing is open today.\n" for name in "abc"}) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sets(st.integers(0, 24), min_size=WORDS, max_size=20), min_size=2, max_size=12))
def test_no_pair_that_is_alike_is_missed(sets: list[set[int]]) -> None:
    texts = [" ".join(f"w{chr(97 + each)}" for each in sorted(some)) for some in sets]
    chunks = [Chunk(path=f"{number}.md", first=1, last=1, headings=(), text=text) for number, text in enumerate(texts)]
    found = {place for finding in findings({}, chunks) for place in finding.places}
    words = [word_set(text) for text in texts]
    alike = {
        f"{one}.md#L1-L1"
        for one in range(len(words))
        for other in range(len(words))
        if one != other and len(words[one] & words[other]) >= ALIKE * len(words[one] | words[other])
    }
    assert found == alike


# --- what was used ----------------------------------------------------------------------------------------------------


def journal(home: Path) -> None:
    hit = RecalledHit(path="memory/recalled.md", lines=(1, 1), digest="d", text="x", score=1.0)
    call = RequestedCall(id="c", tool="memory_get", arguments='{"path": "memory/read.md", "start": 3}')
    other = RequestedCall(id="d", tool="read", arguments='{"path": "memory/unused.md"}')
    output = '{"results":[{"citation":"memory/found.md#L3-L4","score":0.5}]}'
    events: list[Event] = [
        SessionOpened(format=1, session="20261121-120000-aaaaaa", key="main", person="owner"),
        MemoryRecalled(query="q", hits=(hit,), mark="m", millis=1),
        ModelReplied(reply=1, model="m", text="", calls=(call, other), stop="calls", usage=None),
        ToolReturned(call=CallRef(of=3, index=0), outcome="returned", output=output),
        TurnEnded(outcome="replied", millis=1),
    ]
    (home / "sessions").mkdir(parents=True)
    (home / "sessions" / "20261121-120000-aaaaaa.jsonl").write_bytes(b"".join(lines_of(events)))


def test_what_was_recalled_found_or_read_through_the_tools_was_used(tmp_path: Path) -> None:
    journal(tmp_path)
    found = used_documents(JournalFolder(tmp_path / "sessions"))
    assert found.paths == {"memory/recalled.md", "memory/read.md", "memory/found.md"}
    assert (found.since, found.all) == ("2026-11-21T12:00:00.000Z", True)
    little = used_documents(JournalFolder(tmp_path / "sessions"), budget=10)
    assert (little.paths, little.all) == (frozenset(), False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    journal(tmp_path)
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    for name in ("recalled", "read", "found", "unused", "fresh"):
        note = tmp_path / "workspace" / "memory" / f"{name}.md"
        note.write_text(f"The note {name}.\n")
        written = (LATE - timedelta(days=1 if name == "fresh" else 20)).timestamp()
        os.utime(note, (written, written))
    (tmp_path / "workspace" / "MEMORY.md").write_text("Always shown.\n")
    return tmp_path


def audit(home: Path, now: datetime = LATE, *, as_json: bool = False) -> tuple[int, str]:
    out = StringIO()
    code = audit_notes(Invocation(Home(home), home / "config.toml", {}, out, as_json), now)
    return code, out.getvalue()


def test_a_note_that_nobody_needed_is_named_with_since_when_and_is_nothing_wrong(home: Path) -> None:
    code, told = audit(home)
    assert code == 0
    assert told == (
        "(Not recalled since 2026-11-21, the oldest event examined:)\n           memory/unused.md\n0 problems in 6 notes.\n"
    )
    assert audit(home, NOON.astimezone(UTC) + timedelta(days=2))[1] == "0 problems in 6 notes.\n", "too early to say"


def test_an_audit_changes_nothing_shows_no_secret_and_ends_with_one_if_something_is_wrong(home: Path) -> None:
    secret = made_up(36)
    (home / "workspace" / "MEMORY.md").write_text(f"The token is ghp_{secret}.\n")
    before = {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in home.rglob("*")}
    code, told = audit(home)
    assert code == 1
    assert "MEMORY.md#L1-L1" in told
    assert told.endswith("1 problem in 6 notes.\n")
    code, answer = audit(home, as_json=True)
    parsed = json.loads(answer)
    assert (code, parsed["findings"][0]["kind"], parsed["never_recalled"]["notes"]) == (1, "secret", ["memory/unused.md"])
    assert secret not in told + answer
    assert {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in home.rglob("*")} == before
