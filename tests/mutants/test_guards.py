"""The list of guards is true: each stands once in its file, and its tests exist; and each outcome is told as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import __main__ as runner
from tests.mutants.guards import ROOT, Guard, read_guards


@pytest.mark.parametrize("guard", read_guards(), ids=lambda guard: guard.what)
def test_a_guard_stands_once_in_its_file_and_has_tests(guard: Guard) -> None:
    content = (ROOT / guard.file).read_text("utf-8")
    assert content.count(guard.old) == 1
    assert guard.old != guard.new
    compile(content.replace(guard.old, guard.new), guard.file, "exec")  # or each test would fail, whatever it is about
    for test in guard.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8")


def test_no_guard_is_listed_twice() -> None:
    guards = read_guards()
    assert (
        len({guard.what for guard in guards}) == len({(guard.file, guard.old, guard.new) for guard in guards}) == len(guards)
    )


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("ANSWER = 42", "ANSWER = 41", "killed"),
        ("UNUSED = 1", "UNUSED = 2", "survived"),
        ("ANSWER = 42", "ANSWER = None", "hung"),
        ("ANSWER = 43", "ANSWER = 42", "stale"),
        ("ANSWER = 42", "ANSWER =", "untried"),
    ],
)
def test_what_becomes_of_a_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, outcome: str) -> None:
    code = "ANSWER = 42\nUNUSED = 1\n"
    (tmp_path / "answers.py").write_text(code)
    (tmp_path / "test_answers.py").write_text(
        "import threading\n\nfrom answers import ANSWER\n\n\ndef test_it():\n"
        "    if ANSWER is None:\n        threading.Event().wait()\n    assert ANSWER == 42\n"
    )
    if outcome == "hung":
        monkeypatch.setattr(runner, "SECONDS", 3.0)
    guard = Guard(what="", file="answers.py", old=old, new=new, tests=("test_answers.py",))
    assert runner._tried(tmp_path, guard) == outcome
    assert (tmp_path / "answers.py").read_text() == code
