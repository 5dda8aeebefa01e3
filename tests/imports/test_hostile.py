"""Hostile and broken sources: refused or reported in one sentence, and nothing leaves the home."""

from __future__ import annotations

import io
import json
import os
import random
import sqlite3
import string
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.imports.branches import ImportSource, fault_of
from gateway.conversations.imports.import_service import ImportService
from gateway.conversations.imports.readers import export_files
from gateway.conversations.imports.readers.export_files import TooLong, elements
from gateway.conversations.imports.readers.import_values import SourceConversation, SourceInvalid, SourceMessage
from gateway.conversations.imports.readers.source_text import decoded, moment
from tests.imports.sources import chatgpt, imported, journals, lisbon, node, run, spoken, tree


def refused(kind: str, source: Path, home: Path) -> str:
    """Return the one sentence with which an import is refused."""
    result = run("import", kind, source, "--home", home)
    assert result.exit_code == 2, result.output
    (sentence,) = (line for line in result.stderr.splitlines() if line.startswith("exuvia: "))
    return str(sentence)


def test_an_archive_that_grows_absurdly_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "DENSE_BYTES", 100_000)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 50_000_000)
    assert "grows too much" in refused("chatgpt", bomb, tmp_path / "home")


def test_an_archive_whose_bytes_were_damaged_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.zip"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([lisbon()]))
    content = bytearray(damaged.read_bytes())
    content[30 + len("conversations.json")] = 0xFF  # the first byte of the compressed data: a block of no known type
    damaged.write_bytes(content)
    assert "cannot be read" in refused("chatgpt", damaged, tmp_path / "home")


def test_a_split_export_is_read_whole_and_names_with_folders_are_only_names(tmp_path: Path) -> None:
    export, home = tmp_path / "export.zip", tmp_path / "home"
    with zipfile.ZipFile(export, "w") as archive:
        archive.writestr("conversations-000.json", json.dumps([lisbon()]))
        archive.writestr("../../conversations-001.json", json.dumps([tree("2", "Two", node("x", None, "user", "Hello"))]))
    assert imported(home, "chatgpt", export)["items"] == {"conversations": {"new": 2}}
    assert {path.name for path in tmp_path.iterdir()} == {"export.zip", "home"}


def test_deep_nesting_circles_missing_links_and_lone_surrogates(tmp_path: Path) -> None:
    deep = (
        json.dumps(tree("deep", "Deep", node("a", None, "user", "x")))[:-1] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    )
    circle = tree("circle", "Circle", node("p", "q", "user", "one"), node("q", "p", "assistant", "two"))
    lost = tree("lost", "Lost", node("b", "nowhere", "assistant", "An answer"), current="gone")
    surrogate = tree("surrogate", "S \ud83d", node("c", None, "user", "broken \ud83d pair"))
    documents = ",".join([deep, *(json.dumps(each) for each in (circle, lost, surrogate))])
    (tmp_path / "conversations.json").write_text(f"[{documents}]", encoding="utf-8")
    home = tmp_path / "home"
    report = imported(home, "chatgpt", tmp_path / "conversations.json")
    assert report["items"]["conversations"] == {"new": 3}
    assert "it is nested too deeply" in {each["reason"] for each in report["left_out"]}
    assert sorted(spoken(home).values()) == [["An answer"], ["broken \ufffd pair"], ["two", "one"]]
    assert run("sessions", "verify", "--home", home).exit_code == 0


def message(id_: str, **fields: Any) -> SourceMessage:
    return SourceMessage(id=id_, reply=False, text="x", **fields)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([message("a", parent="a")], "comes before the one that it answers"),
        ([message("a", parent="b"), message("b", parent="a")], "comes before the one that it answers"),
        ([message("a"), message("a")], "have the same id"),
        ([message("")], "or one has none"),
        ([message("a", at="../../../../x")], "is not in RFC 3339"),
        ([message("a", at="yesterday")], "is not in RFC 3339"),
        ([message("a" * 3_000_000)], "has more than 1,000 characters"),
    ],
)
async def test_what_no_reader_yields_is_left_out_whatever_sends_it(messages: list[SourceMessage], reason: str) -> None:
    """Such a conversation once kept the gateway busy for ever, or left a log without a line."""
    conversation = SourceConversation(id="c", messages=tuple(messages))
    unused: Any = None
    service = ImportService(unused, unused, unused, facts=unused, schedules=unused, now=unused, zone=unused)
    (left,) = (await service.conversation(ImportSource(person="owner", program="chatgpt"), conversation)).left
    assert reason in left.reason
    assert fault_of(SourceConversation(id="c", messages=(message("a"), message("b", parent="a")))) == ""


def test_many_branches_and_absurd_times(tmp_path: Path) -> None:
    home = tmp_path / "home"
    answers = [node(str(number), "a", "assistant", f"Answer {number}", 1e300) for number in range(100)]
    report = imported(
        home, "chatgpt", chatgpt(tmp_path / "e.zip", tree("1", "Many", node("a", None, "user", "Ask"), *answers))
    )
    assert report["items"] == {"conversations": {"new": 1}, "branches": {"forked": 63}}
    assert [(each["reason"], each["count"]) for each in report["left_out"]] == [("of more than 64 branches", 36)]
    assert len(journals(home)) == 64


def test_a_conversation_that_is_too_large_is_left_out_and_the_next_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_files, "ELEMENT_BYTES", 10_000)
    export = chatgpt(tmp_path / "e.zip", tree("1", "Large", node("a", None, "user", "x" * 20_000)), lisbon())
    report = imported(tmp_path / "home", "chatgpt", export)
    assert report["items"] == {"conversations": {"new": 1}}
    assert [each["reason"] for each in report["left_out"]] == ["larger than 32 MiB"]


def test_elements_of_an_array_are_found_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)

    def value(depth: int = 0) -> Any:
        kind = chance.random()
        if kind < 0.4 or depth > 3:
            return "".join(chance.choices('ab"\\[]{},:\n é', k=chance.randrange(9)))
        if kind < 0.5:
            return chance.choice([1, None, True, -2.5])
        if kind < 0.75:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        return {key: value(depth + 1) for key in chance.choices(string.printable, k=chance.randrange(4))}

    for size in (1, 2, 3, 7, 50, 10_000):
        monkeypatch.setattr(export_files, "PIECE_BYTES", size)
        for _ in range(60):
            document = [value() for _ in range(chance.randrange(5))]
            text = json.dumps(document, indent=chance.choice([None, 1]), ensure_ascii=chance.random() < 0.5).encode()
            found = list(elements(io.BytesIO(text + b" ]garbage")))
            assert [json.loads(each) for each in found if isinstance(each, bytes)] == document
            whole = list(elements(io.BytesIO(json.dumps({"a": document}).encode())))
            assert [json.loads(each) for each in whole if not isinstance(each, TooLong)] == [{"a": document}]
    with pytest.raises(SourceInvalid, match="ends too early"):
        list(elements(io.BytesIO(b'[{"a": "b"}, {"c')))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, "2023-11-14T22:13:20.000Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        ("1700000000", "2023-11-14T22:13:20.000Z"),
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000Z"),
        ("2023-11-14T23:13:20.123456789+01:00", "2023-11-14T22:13:20.123Z"),
        ("2023-11-14 22:13:20", "2023-11-14T22:13:20.000Z"),
        ("yesterday", ""),
        ("0001-01-01T00:00:00+14:00", ""),
        *((absurd, "") for absurd in (float("nan"), float("inf"), True, None, -1e18)),
    ],
)
def test_times_in_every_form(value: object, expected: str) -> None:
    assert moment(value) == expected


def test_what_strict_decoders_refuse_is_decoded() -> None:
    assert decoded(b'{"a": "\\ud800", "b": NaN}', dict[str, Any])["a"] == "\ufffd"
    assert decoded(b'"\xff"', str) == "\ufffd"
    with pytest.raises(ValueError, match="known form"):
        decoded(b'"text"', int)


def test_a_pipe_a_link_and_a_folder_in_place_of_files_are_not_read(tmp_path: Path) -> None:
    source, home = tmp_path / "export", tmp_path / "home"
    source.mkdir()
    os.mkfifo(source / "conversations.json")
    assert "no conversations.json" in refused("chatgpt", source, home)
    workspace = tmp_path / ".nanobot" / "workspace"
    workspace.mkdir(parents=True)
    os.mkfifo(workspace / "pipe.md")
    (workspace / "secret.md").symlink_to("/etc/passwd")
    (workspace / "folder.md").mkdir()
    assert imported(home, "nanobot", tmp_path / ".nanobot")["items"] == {}


def test_a_database_with_views_instead_of_tables_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "logs.db") as database:
        database.execute(
            "CREATE VIEW responses AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
            " SELECT id, '' prompt, '' response, '' conversation_id FROM n"
        )
    database.close()
    assert "is no log of llm" in refused("llm", tmp_path, tmp_path / "home")


_MEASURED = """
import resource, sys
from pathlib import Path
from gateway.conversations.imports.readers.llm_logs import read_llm
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
for _ in read_llm(Path(sys.argv[1])):
    pass
print(peak() - before)
"""


def test_the_rows_of_a_large_log_of_llm_are_not_sorted_in_memory(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "logs.db")) as database, database:
        columns = "model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT, datetime_utc TEXT"
        database.execute(f"CREATE TABLE responses (id TEXT PRIMARY KEY, {columns})")
        rows = ((str(n), "m", 20_000 * "p", "", 20_000 * "r", f"c-{n % 500}", "2026-02-01T10:00:00") for n in range(1500))
        database.executemany("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    grown = subprocess.run([sys.executable, "-c", _MEASURED, str(tmp_path)], capture_output=True, check=True).stdout
    assert int(grown) < 6_000  # KiB; of 60,000 in the log, a sort took 12,000
