"""The list of guards is true: each stands once in its file, and its tests exist."""

from __future__ import annotations

import pytest

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
