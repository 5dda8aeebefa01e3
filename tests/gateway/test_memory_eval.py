"""`exuvia memory eval`: questions with known answers for the memory as configured."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.memory.evaluation import evaluate
from gateway.cli.memory.question_sets import InvalidQuestions, read_questions
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
    (home.parent / "near.jsonl").write_text('{"question": "Rust", "answers": ["MEMORY.md#L3", "MEMORY.md#L7"]}')
    call = Invocation(Home.resolve(home, {}), home / "config.toml", {}, out, as_json=True)
    assert evaluate(call, [home.parent / "near.jsonl"], cutoffs=(5,), every=True) == 0
    rows = json.loads(out.getvalue())["ways"]
    assert [row["fusion"] for row in rows] == ["measured", "openclaw", "copaw", "rrf"]
    # Only CoPaw's ranking has no neighbours of what was found.
    assert [row["recall@5"] for row in rows] == [1.0, 1.0, 0.5, 1.0]
    assert all(row["p50_ms"] <= row["p95_ms"] for row in rows)


def test_several_files_are_shown_side_by_side_and_what_must_find_nothing_has_a_column(home: Path) -> None:
    other = home.parent / "other.jsonl"
    nothing = [f'{{"question": "{question}", "answers": []}}' for question in ("zzzqqq", "banana", "Rust")]
    other.write_text("\n".join(['{"question": "Rust", "answers": ["MEMORY.md#L3"]}', *nothing]))
    done = exuvia(home, "eval", str(home.parent / "q.jsonl"), str(other), "--k", "1")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\n\n" + str(other))
    assert first.splitlines()[0] == f"{home.parent / 'q.jsonl'}: 2 questions"
    assert second.splitlines()[0] == ": 4 questions"
    heads, row = second.splitlines()[2:]
    assert heads.split()[:4] == ["recall@1", "nDCG@1", "MRR", "nothing"]
    assert row.split()[:5] == ["measured", "1.000", "1.000", "1.000", "0.667"]


FAQ = {
    "today": "2026-11-22",
    "notes": {"memory/faq.md": "# FAQ\n\nThe lamp is switched by a relay.\n", "MEMORY.md": "The cat sleeps.\n"},
    "questions": [{"question": "Which relay?", "answers": ["memory/faq.md#L3"]}, {"question": "zzzqqq", "answers": []}],
}
TALK = {
    "source": "written for this test",
    "conversations": [
        {
            "id": name,
            "turns": [
                {"id": "D1:1", "session": 1, "date": "1:56 pm on 8 May, 2023", "speaker": "Ana", "text": f"I like {liked}."},
                {"id": "D2:1", "session": 2, "date": "9:05 am on 2 June, 2023", "speaker": "Ben", "text": "Good\nmorning"},
            ],
            "questions": [
                {"question": f"Who likes {liked}?", "relevant": ["D1:1", "D9:9"], "category": 4, "answer": "Ana"},
                {"question": "Nobody knows", "relevant": ["D9:9"], "category": 4, "answer": ""},
            ],
        }
        for name, liked in (("1", "lemons"), ("2", "kites"))
    ],
}


def test_sets_with_notes_or_conversations_of_their_own_are_one_table_and_nothing_is_added_to_the_home(home: Path) -> None:
    files = [str(home.parent / name) for name in ("q.jsonl", "faq.json", "talk.json")]
    (home.parent / "faq.json").write_text(json.dumps(FAQ, indent=1))
    (home.parent / "talk.json").write_text(json.dumps(TALK))
    done = exuvia(home, "eval", "--sets", *files, "--k", "1", "--all")
    assert done.returncode == 0, done.stderr
    heads, *rows = done.stdout.splitlines()
    assert heads.split()[:5] == ["questions", "recall@1", "nDCG@1", "MRR", "nothing"]
    assert [row.split()[0] for row in rows[::4]] == ["q.jsonl", "faq.json", "talk.json"]
    assert [row.split()[0] for row in rows[1:4]] == ["openclaw", "copaw", "rrf"]
    assert rows[4].split()[1:7] == ["measured", "2", "1.000", "1.000", "1.000", "1.000"]
    assert rows[8].split()[1:6] == ["measured", "2", "1.000", "1.000", "1.000"]
    assert "relay" not in exuvia(home, "search", "relay lamp lemons").stdout


def test_turns_of_conversations_are_lines_of_notes_of_their_days(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    first, second = read_questions(tmp_path / "talk.json")
    assert first.notes == {
        "memory/2023-05-08.md": "## Ana, 1:56 pm\n\nI like lemons.\n",
        "memory/2023-06-02.md": "## Ben, 9:05 am\n\nGood morning\n",
    }
    (asked,) = second.questions
    assert [(place.path, place.first, place.last) for place in asked.answers] == [("memory/2023-05-08.md", 3, 3)]
    assert str(second.today) == "2023-06-02"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            FAQ | {"notes": {"../outside.md": "x"}},
            "../outside.md is no path of a note, such as MEMORY.md or memory/topic.md",
        ),
        (FAQ | {"notes": {"memory/a/../../b.md": "x"}}, "is no path of a note"),
        (FAQ | {"notes": {"/etc/x.md": "x"}}, "is no path of a note"),
        (FAQ | {"notes": {"memory/x.md": 1}}, "Expected `str`, got `int`"),
        (FAQ | {"questions": [{"question": "?", "answers": ["a.md#five"]}]}, "question 1: a.md#five is neither"),
        (FAQ | {"questions": []}, "contains no questions"),
        ({"conversations": []}, "contains no questions"),
        ({"conversations": [{"turns": [], "questions": []}]}, "length >= 1"),
        (
            {"conversations": [{"turns": [{"id": "1", "date": "once", "speaker": "A", "text": "x"}], "questions": []}]},
            "does not match format",
        ),
    ],
)
def test_a_bad_set_is_refused_with_one_sentence(tmp_path: Path, changed: object, told: str) -> None:
    (tmp_path / "set.json").write_text(json.dumps(changed))
    with pytest.raises(InvalidQuestions) as refused:
        read_questions(tmp_path / "set.json")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_may_have_only_questions_that_must_find_nothing(home: Path) -> None:
    other = home.parent / "other.jsonl"
    other.write_text('{"question": "zzzqqq", "answers": []}\n{"question": "Rust", "answers": []}\n')
    done = exuvia(home, "eval", str(home.parent / "q.jsonl"), str(other), "--k", "1")
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
    ((asked,),) = [each.questions for each in read_questions(file)]
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
