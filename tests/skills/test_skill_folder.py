"""The files of a skill: what is refused, the digest of all of them, and what changed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from plugins.skills import skill_folder
from plugins.skills.skill_file import SkillInvalid
from plugins.skills.skill_folder import describe_changes, read_folder, write_folder
from tests.skills.shelves import put


def refusal(folder: Path) -> str:
    with pytest.raises(SkillInvalid) as caught:
        read_folder(folder)
    return str(caught.value)


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    return put(tmp_path, "a-skill", references__API_md="Text\n", scripts__run_py="#!/usr/bin/env python3\n")


def test_all_files_are_read_and_every_change_changes_the_digest(skill: Path) -> None:
    files = read_folder(skill)
    assert list(files.content) == ["SKILL.md", "references/API.md", "scripts/run.py"]
    digests = {files.digest}
    (skill / "scripts" / "run.py").write_text("#!/usr/bin/env python3 \n")
    digests.add(read_folder(skill).digest)
    (skill / "scripts" / "run.py").rename(skill / "scripts" / "go.py")
    digests.add(read_folder(skill).digest)
    (skill / "scripts" / "empty").touch()
    digests.add(read_folder(skill).digest)
    assert len(digests) == 4


def test_where_a_skill_lies_does_not_matter_for_its_digest(skill: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    write_folder(copy, read_folder(skill).content)
    (copy / ".git").mkdir()
    (copy / ".git" / "HEAD").write_text("ref")
    assert read_folder(copy) == read_folder(skill)
    assert os.access(copy / "scripts" / "run.py", os.X_OK)
    assert not os.access(copy / "SKILL.md", os.X_OK)


def test_links_are_refused_wherever_they_lead(skill: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    link = skill / "references" / "x.md"
    for target in (tmp_path / "secret", Path("API.md"), Path("/etc"), Path("nowhere")):
        link.symlink_to(target)
        assert refusal(skill) == "'references/x.md' is a symbolic link; links are not followed."
        link.unlink()
    os.link(tmp_path / "secret", link)
    assert "a second name (a hard link)" in refusal(skill)


def test_a_folder_that_is_a_link_is_refused(skill: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(skill)
    assert refusal(tmp_path / "link").startswith("It is a symbolic link;")


def test_pipes_and_sockets_are_refused_without_waiting(skill: Path) -> None:
    os.mkfifo(skill / "pipe")
    assert "'pipe' cannot be read" in refusal(skill)
    (skill / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(skill)  # the address of a socket is short
        try:
            made.bind("socket")
        finally:
            os.chdir(here)
    with pytest.raises((SkillInvalid, OSError)):
        read_folder(skill)


@pytest.mark.parametrize("pair", [("api.md", "API.md"), ("é.md", "e\u0301.md"), ("straße", "STRASSE"), ("ﬁ", "fi")])
def test_names_that_are_one_file_elsewhere_are_refused(skill: Path, pair: tuple[str, str]) -> None:
    for name in pair:
        (skill / name).touch()
    assert "differ only in case or in the form of their letters" in refusal(skill)


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "a\\b", "c:d", " a", "a ", "a.", "x" * 121])
def test_names_that_mean_something_else_are_refused(skill: Path, name: str) -> None:
    (skill / name).touch()
    assert refusal(skill).startswith("The name ")


def test_too_much_is_refused(skill: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = read_folder(skill).bytes
    monkeypatch.setattr(skill_folder, "MOST_BYTES", size)
    assert read_folder(skill).bytes == size
    monkeypatch.setattr(skill_folder, "MOST_BYTES", size - 1)
    assert "more than 0 MiB" in refusal(skill)
    monkeypatch.setattr(skill_folder, "MOST_FILES", 2)
    assert "more than 2 files" in refusal(skill)
    deep = skill.joinpath(*["d"] * 8)
    deep.mkdir(parents=True)
    assert "more than 8 folders in each other" in refusal(skill)


def test_a_folder_without_skill_md_is_refused(skill: Path) -> None:
    (skill / "SKILL.md").rename(skill / "skill.md")
    assert refusal(skill) == "The folder has no SKILL.md."


def test_changes_are_shown_line_by_line_and_of_binary_files_by_their_size() -> None:
    before = {"SKILL.md": b"a\nb\n", "gone.py": b"x\n", "logo.png": b"\0" * 10, "same": b"s"}
    after = {"SKILL.md": b"a\nc\n", "new.sh": b"rm\n", "logo.png": b"\0" * 11, "same": b"s"}
    text = describe_changes(before, after)
    assert [line for line in text.splitlines() if line[:1] in "+-"] == [
        "--- SKILL.md", "+++ SKILL.md", "-b", "+c",
        "--- gone.py", "+++ /dev/null", "-x",
        "--- /dev/null", "+++ new.sh", "+rm",
    ]  # fmt: skip
    assert "logo.png: 10 bytes with the digest 01d448afd928 before, 11 bytes with" in text
    assert "same" not in text


def test_writing_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        write_folder(tmp_path / "new", {"a": b"", "a/b": b""})
    assert list(tmp_path.iterdir()) == []
