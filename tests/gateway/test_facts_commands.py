"""`exuvia memory facts`: list, export, import and deduplicate, with and without a running gateway."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.cli.memory.facts_commands import (
    FactsCommandFailed,
    dedupe_facts,
    edit_fact,
    export_facts,
    import_facts,
    list_facts,
)
from gateway.cli.options import Invocation
from gateway.support.home import Home
from plugins.api.fact_values import FactChange
from sessions.events.errors import HomeLocked, JournalDamaged
from sessions.files.home_lock import HomeLock

ENTRIES = [
    {"id": "a1", "content": "The API runs on port 3000", "importance": 0.6, "layer": "daily"},
    {"id": "b2", "content": "Ann prefers Rust", "type": "preference", "importance": 0.9, "pinned": True, "owner": "ann"},
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


def bring(home: Home, *entries: object) -> tuple[int, str]:
    document, out = home.root.parent / "facts.json", io.StringIO()
    document.write_text(json.dumps({"entries": entries}))
    return import_facts(Invocation(home, home.config, os.environ, out), document), out.getvalue()


def listed(home: Home) -> list[dict[str, object]]:
    out = io.StringIO()
    list_facts(Invocation(home, home.config, {}, out, as_json=True), None)
    rows: list[dict[str, object]] = json.loads(out.getvalue())["facts"]
    return rows


def test_facts_are_imported_listed_and_exported(home: Home) -> None:
    assert bring(home, *ENTRIES) == (0, "2 facts imported, 0 refused.\n")
    out = io.StringIO()
    assert list_facts(Invocation(home, home.config, {}, out), None) == 0
    first, second = out.getvalue().splitlines()
    assert first.endswith("daily fact: The API runs on port 3000")
    assert second.endswith("longterm preference pinned ann: Ann prefers Rust")
    file, other = home.root.parent / "out.json", Home(home.root.parent / "other")
    assert export_facts(Invocation(home, home.config, {}, io.StringIO()), file) == 0
    other.make()
    assert import_facts(Invocation(other, other.config, os.environ, io.StringIO()), file) == 0
    assert listed(other) == listed(home)


@pytest.mark.parametrize(("days", "count"), [("30", 1), ("60", 2)])
def test_expired_daily_facts_are_neither_listed_nor_exported(home: Home, days: str, count: int) -> None:
    old = (datetime.now(UTC) - timedelta(days=40)).isoformat()
    bring(home, *ENTRIES, {"id": "c3", "content": "The printer is grey", "layer": "daily", "createdAt": old})
    bring(home, {"id": "d4", "content": "The printer is black", "layer": "longterm", "createdAt": old})
    out, exported = io.StringIO(), io.StringIO()
    environment = {"EXUVIA__MEMORY__FACTS__RETENTION_DAYS": days}
    list_facts(Invocation(home, home.config, environment, out, as_json=True), "daily")
    export_facts(Invocation(home, home.config, environment, exported), None)
    assert len(json.loads(out.getvalue())["facts"]) == count
    assert len(json.loads(exported.getvalue())["entries"]) == count + 2


def test_each_refused_entry_is_named_and_the_others_are_kept(home: Home) -> None:
    code, told = bring(home, ENTRIES[0], {"content": ""}, {"content": "x", "type": "opinion"})
    assert code == 1
    assert told.splitlines()[0] == "Entry 2: A fact needs words."
    assert told.splitlines()[-1] == "1 fact imported, 2 refused."
    assert [row["id"] for row in listed(home)] == ["a1"]


def test_the_same_document_twice_adds_nothing(home: Home) -> None:
    bring(home, *ENTRIES)
    before = home.facts.read_bytes()
    assert bring(home, *ENTRIES)[0] == 1
    assert home.facts.read_bytes() == before


def test_the_same_document_twice_adds_nothing_either_where_it_names_no_ids(home: Home) -> None:
    rows = [{"content": "The port is 3000", "layer": "daily"}, {"content": "Ann likes Rust"}]
    bring(home, *rows)
    before = home.facts.read_bytes()
    assert bring(home, *rows)[0] == 1
    assert home.facts.read_bytes() == before


def test_an_export_writes_over_nothing(home: Home) -> None:
    file = home.root.parent / "mine.txt"
    file.write_text("mine")
    with pytest.raises(FactsCommandFailed, match="exists"):
        export_facts(Invocation(home, home.config, {}, io.StringIO()), file)
    assert file.read_text() == "mine"


def test_while_a_gateway_runs_facts_are_read_and_not_written(home: Home) -> None:
    bring(home, *ENTRIES)
    with HomeLock(home.lock):
        assert len(listed(home)) == 2
        with pytest.raises(HomeLocked):
            bring(home, {"content": "x"})


def test_dedupe_reports_each_removed_fact_and_the_one_kept_instead(home: Home) -> None:
    bring(home, {"id": "a1", "content": "the port is 3000", "layer": "daily"})
    bring(home, {"id": "c3", "content": "the port is 3000"})
    out = io.StringIO()
    assert dedupe_facts(Invocation(home, home.config, os.environ, out)) == 0
    assert out.getvalue() == "0 facts removed.\n"  # a daily one is no copy of one that stays


def test_a_fact_is_edited_and_keeps_its_history(home: Home) -> None:
    bring(home, *ENTRIES)
    out = io.StringIO()
    call = Invocation(home, home.config, os.environ, out)
    change = FactChange(content="The API runs on port 4000", type="decision", tags=("api",), importance=0.9)
    assert edit_fact(call, "a", change) == 0
    assert out.getvalue().endswith("0.90  longterm decision edited: The API runs on port 4000\n")
    edited = next(row for row in listed(home) if row["id"] == "a1")
    assert (edited["content"], edited["tags"][:1]) == ("The API runs on port 4000", ["api"])  # type: ignore[index]
    for wrong, said in ((FactChange(), "Nothing to change"), (FactChange(type="x"), "is one of"), (change, "no fact zz")):
        with pytest.raises(FactsCommandFailed, match=said):
            edit_fact(call, "zz" if wrong is change else "a1", wrong)
    with HomeLock(home.lock), pytest.raises(HomeLocked):
        edit_fact(call, "a1", change)
    assert next(row for row in listed(home) if row["id"] == "a1") == edited


def test_a_damaged_log_is_named_and_left_as_it_is(home: Home) -> None:
    bring(home, *ENTRIES)
    harmed = home.facts.read_bytes().replace(b"3000", b"4000")
    home.facts.write_bytes(harmed)
    with pytest.raises(JournalDamaged, match="line 2"):
        listed(home)
    with pytest.raises(FactsCommandFailed, match="line 2"):
        bring(home, {"content": "x"})
    assert home.facts.read_bytes() == harmed
    assert listed(Home(home.root.parent / "empty")) == []


def test_a_document_without_an_end_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FactsCommandFailed) as refused:
        import_facts(Invocation(Home(tmp_path), tmp_path / "config.toml", os.environ, io.StringIO()), Path("/dev/zero"))
    assert str(refused.value) == "/dev/zero is larger than 32 MB; import it in parts."
