"""`exuvia memory index`, `search` and `show`, and the bundled model where it is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def exuvia(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EXUVIA_")}
    command = [sys.executable, "-m", "exuvia", "memory", *words, "--home", str(home)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "workspace" / "memory"
    folder.mkdir(parents=True)
    (folder.parent / "MEMORY.md").write_text(
        "# Ana\n\nThe preferred language is Rust.\n\n# Build\n\nIt ends with ECONNREFUSED.\n"
    )
    (tmp_path / "home" / "config.toml").write_text('[memory.embedding]\nprovider = "none"\n')
    return tmp_path / "home"


@pytest.fixture
def indexed(home: Path) -> Path:
    """A home whose index is made: a search waits for it for a second only."""
    exuvia(home, "index")
    return home


def test_notes_are_indexed_and_found_from_the_command_line(home: Path) -> None:
    assert exuvia(home, "index").stdout == "1 notes, 2 chunks: found by keywords only.\n"

    found = exuvia(home, "search", "econnrefused", "--json")
    (result,) = json.loads(found.stdout)["results"][:1]
    assert (found.returncode, result["citation"]) == (0, "MEMORY.md#L7-L7")

    told = exuvia(home, "search", "Ana's language", "--explain").stdout
    assert "MEMORY.md#L3-L3  Ana\n" in told
    assert "  named\n" in told


def test_what_was_found_is_shown_by_its_citation(home: Path) -> None:
    shown = exuvia(home, "show", "MEMORY.md#L3-L5")
    assert (shown.returncode, shown.stdout) == (0, "The preferred language is Rust.\n\n# Build\n")
    nothing = exuvia(home, "show", "memory/nothing.md#L1-L2")
    assert (nothing.returncode, nothing.stdout) == (1, "(There is nothing at memory/nothing.md#L1-L2.)\n")
    wrong = exuvia(home, "show", "MEMORY.md")
    assert (wrong.returncode, wrong.stderr) == (2, "exuvia: MEMORY.md is not a citation such as MEMORY.md#L3-L7.\n")


def test_on_a_terminal_the_words_of_the_query_are_bold(indexed: Path) -> None:
    command = [sys.executable, "-m", "exuvia", "memory", "search", "language", "--home", str(indexed)]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    ours, terminal = os.openpty()
    with open(ours, "rb") as shown, open(terminal, "wb") as out:
        subprocess.run(command, env=environment, stdout=out, check=True)
        assert b"The preferred \x1b[1mlanguage\x1b[22m is Rust." in shown.read1()


def test_each_score_can_be_added_up_by_hand(indexed: Path) -> None:
    told = exuvia(indexed, "search", "Ana's language", "--explain").stdout
    first = told.split("\n\n")[0].split("\n")
    parts = [re.match(r" *([\d.]+) = ([\d.]+) × ([\d.]+)  \w", line) for line in first]
    rows = [[float(number) for number in part.groups()] for part in parts if part]
    total = re.search(r"([\d.]+) total × ([\d.]+) age factor = ([\d.]+)", told)
    assert total
    fused, decay, score = map(float, total.groups())
    assert len(rows) >= 3
    assert all(worth == pytest.approx(value * weight, abs=1e-4) for worth, value, weight in rows)
    assert sum(worth for worth, _, _ in rows) == pytest.approx(fused, abs=5e-4)
    assert fused * decay == pytest.approx(score, abs=1e-4) == pytest.approx(float(first[0].split()[0]), abs=1e-3)


def test_what_is_not_there_is_said_and_ends_with_one(indexed: Path) -> None:
    nothing = exuvia(indexed, "search", "zebra")
    assert (nothing.returncode, nothing.stdout) == (1, "(Nothing matches in 1 note.)\n")
    nowhere = exuvia(indexed / "nowhere", "search", "zebra")
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "There is no home" in nowhere.stderr


def test_an_index_that_cannot_be_made_is_one_sentence(home: Path) -> None:
    (home / "memory.sqlite").mkdir()
    failed = exuvia(home, "index")
    assert failed.returncode == 2
    assert failed.stderr.startswith("exuvia: The memory index cannot be used: ")
    assert failed.stderr.count("\n") == 1


def test_the_status_says_what_the_index_holds_and_what_is_behind(home: Path) -> None:
    before = exuvia(home, "status", "--json")
    assert (before.returncode, json.loads(before.stdout)["behind"]) == (1, ["MEMORY.md"])
    assert not (home / "memory.sqlite").exists(), "it only looks"
    exuvia(home, "index")

    told = json.loads(exuvia(home, "status", "--json").stdout)
    assert (told["documents"], told["chunks"], told["behind"]) == ({"notes": 1}, {"notes": 2}, [])
    assert (told["provider"], told["unembedded"], told["cached"], told["cache"]) == (None, None, 0, 50_000)
    (home / "workspace" / "memory" / "new.md").write_text("new\n")
    behind = exuvia(home, "status")
    assert behind.returncode == 1
    assert "Documents: 1 (1 of notes)\nChunks: 2 (2 of notes)\nVectors: none, found by keywords only\n" in behind.stdout
    assert behind.stdout.endswith("Behind: 1 document changed since, first memory/new.md\n")
