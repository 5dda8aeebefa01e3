"""Which shell texts are plain commands: those that every shell splits into the same words, and no other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plugins.tools.execution.plain_command import digest_of_files, is_rememberable, parse

PLAIN = {
    "git push": ("git", "push"),
    "  git\tcommit -m 'first one'\n": ("git", "commit", "-m", "first one"),
    "echo \"a; b | c > d & e\" '$HOME `x` \\'": ("echo", "a; b | c > d & e", "$HOME `x` \\"),
    "tar -xf a-b_c.tar.gz --exclude=x,y:z+1@2%3": ("tar", "-xf", "a-b_c.tar.gz", "--exclude=x,y:z+1@2%3"),
    "./run.sh a'b c'\"d e\"f ''": ("./run.sh", "ab cd ef", ""),
    "grep 'Größe' memory": ("grep", "Größe", "memory"),
    "'if' then": ("if", "then"),
    "env A=b": ("env", "A=b"),
}

SCRIPTS = [
    *("a; b", "a && b", "a || b", "a | b", "a & ", "a > b", "a < b", "a 2>&1", "a >> b", "a <<< b", "(a)", "{ a; }", "! a"),
    *("a `b`", "a $(b)", "a $b", 'a "$b"', 'a "${b}"', 'a "`b`"', "a $'b'", "a *", "a ?", "a [b]", "a {b,c}", "a ~", "~/a"),
    *("a \\b", 'a "\\b"', 'a "!b"', "A=b", "A=b a", "A+=b a", "if a", "while a", "for a", "time a", "function a", "case a"),
    *("a # b", "a 'b", 'a "b', "'' a", "", " ", "[[ a ]]", "a\nb", "a 'b\nc'", "a \u00a0b", "a b^c", "a\rb", "a \0"),
    *("a 'b\x1b[2J'", "a 'b\u202ec'", "a 'b\u200bc'", "coproc a", "a ~root", 'a "b'),
]


@pytest.mark.parametrize("text", PLAIN)
def test_words_that_a_shell_would_not_interpret_are_a_plain_command(text: str) -> None:
    assert parse(text) == PLAIN[text]


@pytest.mark.parametrize("text", SCRIPTS)
def test_everything_else_is_a_script(text: str) -> None:
    assert parse(text) == ()


ALPHABET = "ab =\t'\"\\$`!*?[]{}~#;|&<>()\n\r-./%@+,:^0\u00a0é"


@given(st.text(st.sampled_from(ALPHABET), max_size=12))
@example("a=b")
@example("'a'=b")
@example("a''=b")
@example("{a,b}")
@example("a -''b")
@example("'' \"\"")
@settings(max_examples=300)
def test_a_shell_splits_a_plain_command_into_the_same_words(text: str) -> None:
    command = f"printf '%s\\0' first {text}"
    if words := parse(command):
        for shell in ("bash", "sh"):
            done = subprocess.run([shell, "-c", command], capture_output=True, check=True)
            assert done.stdout.decode().split("\0")[:-1] == list(words[2:])


def test_a_program_that_runs_its_arguments_or_can_be_replaced_is_not_remembered() -> None:
    remembered = {"git push", "ls", "pytest -q", "/usr/bin/make all", "/bin/ls"}
    replaceable = {"./run.sh", "bin/make", "/home/x", "/usrlocal/x"}
    refused = {
        "bash -c x",
        "/bin/sh run.sh",
        "python3.12 -c x",
        "env git",
        "eval x",
        "xargs rm",
        "/usr/bin/env python",
        "sudo x",
    }
    assert {text for text in remembered | refused | replaceable if is_rememberable(parse(text))} == remembered


def test_a_digest_depends_on_the_files_that_a_command_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    run, script = tmp_path / "sub" / "run.sh", tmp_path / "a b.py"

    def digests() -> list[str]:
        texts = ("./run.sh now", f"sh '{run}'", "python ../'a b.py'", "cd x; sh run.sh", "ls -l", "cat /etc/hostname")
        return [digest_of_files(tmp_path, "sub", text) for text in texts]

    assert digests() == [""] * 6
    run.write_text("echo one\n")
    script.write_text("print(1)\n")
    first = digests()
    assert [bool(each) for each in first] == [True, True, True, True, False, False]
    run.write_text("echo two\n")
    assert [a == b for a, b in zip(first, digests(), strict=True)] == [False, False, True, False, True, True]
    run.unlink()
    run.symlink_to("/etc/hostname")
    assert digests()[0] == ""
