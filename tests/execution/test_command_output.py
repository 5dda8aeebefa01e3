"""The output of commands: as plain text, bounded, and readable in full from a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.tools.execution import command_output
from plugins.tools.execution.command_output import FOLDER, SHOWN_CHARACTERS, TAIL_CHARACTERS, CommandOutput, output_name
from plugins.tools.execution.terminal_text import TerminalText

# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mcolour\x1b[m", "red colour"),
        (b"\x1b]0;title\x07a\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "alink"),
        (b"\x1bPdata\x1b\\a\x1b_b\x1b\\c\x1b(B\x1bMd\x1b=\x1b7", "acd"),
        (b"\x1b]52;c;aGVsbG8=\x07clipboard", "clipboard"),
        (b"a\x00b\x07c\x7fd\x0be", "abcde"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b" 1%\r50%\r99%\r\ndone", "99%\ndone"),
        (b"spinner |\rspinner /\r", "spinner /"),
        (b"b\x08bo\x08ol\x08ld", "bold"),
        (b"\xff\xfeA\xc3", "\ufffd\ufffdA\ufffd"),
        ("漢字 é".encode(), "漢字 é"),
        ("\u202egnp.exe\u2066".encode(), "gnp.exe"),
        ("\x9b31mC1\x85".encode(), "31mC1"),
        (b"tab\tnew\nline", "tab\tnew\nline"),
    ],
)
def test_what_only_a_terminal_acts_on_is_removed(data: bytes, text: str) -> None:
    assert TerminalText().feed(data, last=True) == text


_PIECES = st.lists(
    st.sampled_from(
        [
            b"a",
            b"\n",
            b"\r\n",
            b"\x1b[31m",
            b"\x1b]0;t\x07",
            b"\x1b]8;;u\x1b\\",
            "é漢".encode(),
            b"\xff",
            b"\x1b(B",
            b"word ",
        ]
    ),
    max_size=30,
)


@given(_PIECES, st.integers(1, 7))
def test_the_text_does_not_depend_on_how_the_bytes_arrive(pieces: list[bytes], size: int) -> None:
    data, text = b"".join(pieces), TerminalText()
    split = "".join(text.feed(data[at : at + size]) for at in range(0, len(data), size)) + text.feed(b"", last=True)
    assert split == TerminalText().feed(data, last=True)


def test_a_line_that_was_shown_and_is_then_overwritten_goes_on_in_a_new_line() -> None:
    text = TerminalText()
    assert [text.feed(b"10%"), text.feed(b"\r20%"), text.feed(b"\r30%\n"), text.feed(b"ok\r")] == [
        "10%",
        "\n20%",
        "\n30%\n",
        "ok",
    ]


@pytest.mark.parametrize(
    "data", [b"\r" * 300_000, b"\x1b]" * 150_000, b"\x1b" * 300_000, b"a\x08" * 150_000, b"\x1b[" + b"0;" * 150_000]
)
def test_hostile_output_takes_linear_time_and_is_not_held_back(data: bytes) -> None:
    text = TerminalText()
    began = time.process_time()
    for at in range(0, len(data), 65536):
        text.feed(data[at : at + 65536])
    assert time.process_time() - began < 5.0
    assert len(text.feed(b"end", last=True)) < 10_000


# --- bounds -----------------------------------------------------------------------------------------------------------


def output(workspace: Path, person: str = "owner") -> CommandOutput:
    workspace.mkdir(exist_ok=True)
    return CommandOutput(workspace, person, "20261121-120000-3-0.txt")


def test_a_short_output_is_shown_whole_and_makes_no_file(tmp_path: Path) -> None:
    made = output(tmp_path)
    text = "line\n" * (SHOWN_CHARACTERS // 5)
    made.feed(text.encode())
    made.finish()
    assert (made.shown(), list(tmp_path.iterdir())) == (text, [])


def test_of_a_long_output_both_ends_are_shown_and_all_of_it_is_in_a_file(tmp_path: Path) -> None:
    made = output(tmp_path)
    text = "".join(f"line {number}\n" for number in range(20_000))
    for at in range(0, len(text), 1000):
        made.feed(text[at : at + 1000].encode())
    made.finish()
    left_out = len(text) - SHOWN_CHARACTERS
    assert made.shown() == (
        f"{text[: SHOWN_CHARACTERS - TAIL_CHARACTERS]}\n[{left_out:,} characters are left out here."
        f" Read outputs/20261121-120000-3-0.txt for the whole output.]\n{text[-TAIL_CHARACTERS:]}"
    )
    assert (tmp_path / made.path).read_text() == text
    assert (tmp_path / made.path).stat().st_mode & 0o777 == 0o600


def test_a_persons_file_is_in_their_own_folder(tmp_path: Path) -> None:
    made = output(tmp_path, "ana")
    made.feed(b"x" * 100_000)
    made.finish()
    assert made.path == "outputs/20261121-120000-3-0.txt"
    assert (tmp_path / "people" / "ana" / made.path).stat().st_size == 100_000


def test_a_file_is_bounded_and_the_end_of_the_output_is_still_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_output, "FILE_BYTES", 100_000)
    made = output(tmp_path)
    for number in range(100_000):
        made.feed(b"%09d\n" % number)
    made.finish()
    assert (tmp_path / made.path).stat().st_size == 100_000
    assert made.shown().endswith("000099998\n000099999\n")
    assert "Read outputs/20261121-120000-3-0.txt for the whole output, up to 97 KiB.]" in made.shown()


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / FOLDER).symlink_to(elsewhere, target_is_directory=True)
    made = output(workspace)
    made.feed(b"x" * 100_000)
    made.finish()
    assert list(elsewhere.iterdir()) == []
    assert "The output could not be written to a file (Symbolic links are not followed)." in made.shown()


def test_old_files_are_removed_and_others_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_output, "KEPT_BYTES", 250_000)
    folder = tmp_path / FOLDER
    folder.mkdir()
    now = time.time()
    for name, age in (
        ("20260101-000000-1.txt", 8),
        ("20260102-000000-2.txt", 3),
        ("20260103-000000-3.txt", 1),
        ("mine.txt", 400),
    ):
        (folder / name).write_bytes(b"x" * 120_000)
        os.utime(folder / name, (now - age * 86_400, now - age * 86_400))
    made = output(tmp_path)
    made.feed(b"x" * 100_000)
    made.finish()
    kept = {path.name for path in folder.iterdir()}
    assert kept == {"20260102-000000-2.txt", "20260103-000000-3.txt", "mine.txt", made.path.partition("/")[2]}
    other = CommandOutput(tmp_path, "owner", output_name("20261121-120000-aaaaaa/4/0"))
    other.feed(b"x" * 100_000)
    other.finish()
    assert "20260102-000000-2.txt" not in {path.name for path in folder.iterdir()}


def test_new_output_is_returned_since_a_position(tmp_path: Path) -> None:
    made = output(tmp_path)
    made.feed(b"one\n")
    first, position = made.since(0)
    made.feed(b"two\n")
    second, position = made.since(position)
    assert (first, second, made.since(position)) == ("one\n", "two\n", ("", 8))
