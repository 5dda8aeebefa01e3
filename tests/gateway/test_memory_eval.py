"""`exuvia memory eval`: questions with known answers for the memory as configured."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.memory.evaluation import InvalidQuestions, evaluate, read_questions
from gateway.cli.options import Invocation
from gateway.support.home import Home
from tests.memory.test_memory_commands import exuvia

GOOD = (
    '{"question": "What is the preferred language?", "answers": ["MEMORY.md#L3"]}\n'
    '\n{"question": "How does the build end?", "answers": ["MEMORY.md#L7-L8", "memory/none.md"]}\n'
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "MEMORY.md").write_text(
        "# Ana\n\nThe preferred language is Rust.\n\n# Build\n\nIt ends with ECONNREFUSED.\n"
    )
    (tmp_path / "home" / "config.toml").write_text('[memory.embedding]\nprovider = "none"\n')
    (tmp_path / "q.jsonl").write_text(GOOD)
    return tmp_path / "home"


def test_the_figures_of_the_configured_way_are_printed(home: Path) -> None:
    done = exuvia(home, "eval", str(home.parent / "q.jsonl"), "--k", "1,5")
    assert done.returncode == 0, done.stderr
    first, _, heads, row = done.stdout.splitlines()
    assert first == "2 questions"
    assert heads.split() == ["recall@1", "recall@5", "nDCG@5", "MRR", "p50", "ms", "p95", "ms"]
    assert row.split()[:5] == ["measured", "0.750", "0.750", "0.807", "1.000"]


def test_all_ways_are_compared_as_json(home: Path) -> None:
    out = io.StringIO()
    call = Invocation(Home.resolve(home, {}), home / "config.toml", {}, out, as_json=True)
    assert evaluate(call, [home.parent / "q.jsonl"], cutoffs=(5,), every=True) == 0
    rows = json.loads(out.getvalue())["ways"]
    assert [row["fusion"] for row in rows] == ["measured", "openclaw", "copaw", "rrf"]
    assert {row["recall@5"] for row in rows} == {0.75}
    assert all(row["p50_ms"] <= row["p95_ms"] for row in rows)


def test_several_files_are_shown_side_by_side_and_what_must_find_nothing_has_a_column(home: Path) -> None:
    other = home.parent / "other.jsonl"
    nothing = [f'{{"question": "{question}", "answers": []}}' for question in ("zzzqqq", "banana", "Rust")]
    other.write_text("\n".join(['{"question": "Rust", "answers": ["MEMORY.md#L3"]}', *nothing]))
    for arguments in (
        ("q.jsonl", "--sets", "other.jsonl"),
        ("q.jsonl", "other.jsonl"),
        ("--sets", "q.jsonl", "--sets", "other.jsonl"),
    ):
        files = [each if each.startswith("-") else str(home.parent / each) for each in arguments]
        done = exuvia(home, "eval", *files, "--k", "1")
        assert done.returncode == 0, done.stderr
        first, second = done.stdout.split("\n\n" + str(other))
        assert first.splitlines()[0] == f"{home.parent / 'q.jsonl'}: 2 questions"
        assert second.splitlines()[0] == ": 4 questions"
        heads, row = second.splitlines()[2:]
        assert heads.split()[:4] == ["recall@1", "nDCG@1", "MRR", "nothing"]
        assert row.split()[:5] == ["measured", "1.000", "1.000", "1.000", "0.667"]


def test_a_file_may_have_only_questions_that_must_find_nothing(home: Path) -> None:
    other = home.parent / "other.jsonl"
    other.write_text('{"question": "zzzqqq", "answers": []}\n{"question": "Rust", "answers": []}\n')
    done = exuvia(home, "eval", str(home.parent / "q.jsonl"), "--sets", str(other), "--k", "1")
    assert done.returncode == 0, done.stderr
    heads, row = done.stdout.splitlines()[-2:]
    assert heads.split()[:4] == ["recall@1", "nDCG@1", "MRR", "nothing"]
    assert row.split()[:2] == ["measured", "0.500"]
    assert row.index("0.500") + len("0.500") == heads.index("nothing") + len("nothing")
    (alone,) = json.loads(exuvia(home, "eval", str(other), "--json").stdout)["ways"]
    assert set(alone) == {"file", "fusion", "questions", "nothing", "p50_ms", "p95_ms"}


def test_without_a_file_there_is_nothing_to_evaluate(home: Path) -> None:
    done = exuvia(home, "eval")
    assert (done.returncode, done.stdout) == (2, "")
    assert "FILE" in done.stderr


def test_toml_and_turns_of_sessions_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    file.write_text(
        '[[questions]]\nquestion = "Which?"\nanswers = ["a.md", {session = "20261121-031241-7k2m9q", seq = 12}]\n'
    )
    (asked,) = read_questions(file)
    assert {(place.path, place.first, place.last) for place in asked.answers} == {
        ("a.md", 1, None),
        ("sessions/20261121-031241-7k2m9q.jsonl", 12, 12),
    }


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("q.jsonl", "", "contains no questions"),
        ("q.jsonl", GOOD + "{", "line 4: invalid JSON"),
        ("q.jsonl", "[" * 100_000, "line 1: invalid JSON"),
        ("q.jsonl", GOOD + '{"question": "?", "answers": [""]}', "line 4: .*length >= 1"),
        ("q.jsonl", '{"question": "?", "answer": ["a.md"]}', "line 1: .*`answer`"),
        ("q.jsonl", '{"question": "?", "answers": ["a.md#L5-L3"]}', "line 1: a.md#L5-L3 ends before it begins"),
        ("q.jsonl", '{"question": "?", "answers": ["a.md#five"]}', "line 1: a.md#five is neither"),
        ("q.jsonl", '{"question": "?", "answers": [{"session": "../x", "seq": 1}]}', "line 1: "),
        ("q.toml", "[[questions]\n", "not valid TOML: .*line 1"),
        ("q.toml", "[[question]]\n", "line 1: it must contain"),
        ("q.toml", '\n\n[[questions]]\nquestion = ""\nanswers = ["a.md"]\n', "line 3: .*length >= 1"),
    ],
)
def test_a_bad_file_is_refused_with_one_sentence_and_its_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InvalidQuestions) as refused:
        read_questions(file)
    assert re.search(told, str(refused.value))
    assert "\n" not in str(refused.value)


def test_what_cannot_be_done_ends_with_two(home: Path) -> None:
    command = [sys.executable, "-m", "exuvia", "memory", "eval", str(home / "none.jsonl"), "--home", str(home)]
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
    wrong = subprocess.run([*command, "--k", "5,x"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "exuvia: --k takes numbers from 1 to 50, as in --k 5,10.\n")


def test_a_file_without_an_end_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidQuestions) as refused:
        read_questions(Path("/dev/zero"))
    assert str(refused.value) == "/dev/zero is larger than 16 MB."
