"""`exuvia skills list|add|check`: real skills in the forms of other agents, archives, downloads, and hostile archives."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import struct
import tarfile
import threading
import tracemalloc
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from plugins.skills import archives
from plugins.skills.archives import unpack
from plugins.skills.installation import skills_in_archive
from plugins.skills.skill_file import SkillInvalid
from plugins.skills.skill_folder import MOST_BYTES, read_folder
from tests.skills.shelves import front, put

SAMPLES = Path(__file__).parent / "samples"
SKILL = (front("notes", "Writes notes.") + "# Steps\n").encode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    return home


def skills(home: Path, *arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, ["skills", *arguments, "--home", str(home)], input=typed)


def listed(home: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(skills(home, "list", "--json").stdout)}


def states(home: Path) -> dict[str, str]:
    return {name: each["state"] for name, each in listed(home).items()}


def zipped(files: Mapping[str, bytes | str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made.getvalue()


def tarred(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


# --- adding -----------------------------------------------------------------------------------------------------------


def test_skills_of_other_agents_are_added_unchanged(home: Path) -> None:
    added = skills(home, "add", str(SAMPLES), "--yes", "--json")
    assert added.exit_code == 0
    names = {"pdf-forms", "invoice-ledger", "gh-triage", "review-checklist", "meeting-notes", "translate-zh"}
    assert {each["name"] for each in json.loads(added.stdout) if each["admitted"]} == names

    found = listed(home)
    assert {name: each["state"] for name, each in found.items()} == dict.fromkeys(names, "admitted")
    assert found["gh-triage"]["description"] == "Triage new issues: label them, find duplicates, ask for missing details"
    assert found["invoice-ledger"]["description"].startswith(
        "Reads invoices and receipts (PDF, photo, e-mail) and books them"
    )
    assert found["translate-zh"]["description"].startswith("把英文技术文档翻译成中文")
    assert found["meeting-notes"]["origin"] == str(SAMPLES / "Meeting Notes")
    folder = home / "workspace" / "skills"
    assert read_folder(folder / "pdf-forms") == read_folder(SAMPLES / "pdf-forms")
    assert os.access(folder / "pdf-forms" / "scripts" / "fields.py", os.X_OK)
    assert skills(home, "list").exit_code == 0


def test_a_skill_is_shown_and_asked_about_and_no_is_the_default(home: Path, tmp_path: Path) -> None:
    source = put(tmp_path, "notes", "Writes notes.", scripts__run_py="print(1)\n")
    for typed in ("", "\n", "n\n", "what\n"):
        refused = skills(home, "add", str(source), typed=typed)
        assert refused.exit_code == 1
        assert states(home) == {}
    agreed = skills(home, "add", str(source), typed="y\n")
    assert agreed.exit_code == 0
    for shown in ("notes: Writes notes.", "scripts/run.py (9 bytes)", "# Steps", "Admit notes (", "notes is admitted."):
        assert shown in agreed.stdout
    assert listed(home)["notes"]["by"] == "owner"
    assert skills(home, "add", str(source)).exit_code == 0, "the same files need no second question"


def test_a_skill_that_lies_among_the_others_is_admitted_where_it_is(home: Path) -> None:
    folder = put(home / "workspace" / "skills", "notes")
    before = folder.stat().st_ino
    assert states(home) == {"notes": "new"}
    assert skills(home, "list").exit_code == 1
    assert skills(home, "add", str(folder), typed="y\n").exit_code == 0
    assert states(home) == {"notes": "admitted"}
    assert folder.stat().st_ino == before


def test_a_new_version_is_shown_by_its_changes_and_replaces_the_old_one_as_a_whole(home: Path, tmp_path: Path) -> None:
    source = put(tmp_path, "notes", references__OLD_md="old\n")
    skills(home, "add", str(source), "--yes")
    (source / "references" / "OLD.md").rename(source / "references" / "NEW.md")
    (source / "SKILL.md").write_text((source / "SKILL.md").read_text() + "And more.\n")

    refused = skills(home, "add", str(source), typed="n\n")
    assert "+And more." in refused.stdout
    assert "Do it well" in refused.stdout
    assert "Admit these changes of notes (" in refused.stdout
    place = home / "workspace" / "skills" / "notes"
    assert (place / "references" / "OLD.md").exists()
    assert states(home) == {"notes": "admitted"}

    assert skills(home, "add", str(source), typed="y\n").exit_code == 0
    assert [path.name for path in (place / "references").iterdir()] == ["NEW.md"]
    assert states(home) == {"notes": "admitted"}
    assert [path.name for path in place.parent.iterdir()] == ["notes"]


def test_an_imitation_is_not_written(home: Path, tmp_path: Path) -> None:
    skills(home, "add", str(put(tmp_path, "git-helper")), "--yes")
    refused = skills(home, "add", str(put(tmp_path, "git-he1per")), "--yes", "--json")
    assert refused.exit_code == 1
    (only,) = json.loads(refused.stdout)
    assert only["reason"].startswith("The name 'git-he1per' looks like that of the skill 'git-helper'")
    assert [path.name for path in (home / "workspace" / "skills").iterdir()] == ["git-helper"]


@pytest.mark.parametrize("make", [zipped, tarred])
def test_archives_with_one_or_several_skills_are_added(home: Path, tmp_path: Path, make: Any) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    one.write_bytes(make({"SKILL.md": SKILL, "scripts/run.sh": b"#!/bin/sh\n"}))
    several.write_bytes(
        make(
            {
                "repository-main/README.md": b"x",
                "repository-main/skills/tables/SKILL.md": front("tables", "Makes tables.").encode(),
                "repository-main/skills/tables/examples/inner/SKILL.md": b"an example",
                "repository-main/skills/broken/SKILL.md": b"# nothing\n",
            }
        )
    )
    assert skills(home, "add", str(one), "--yes").exit_code == 0
    mixed = skills(home, "add", str(several), "--yes")
    assert mixed.exit_code == 1
    assert "broken was not admitted. SKILL.md does not begin with front matter" in mixed.stdout
    assert states(home) == {"notes": "admitted", "tables": "admitted"}
    place = home / "workspace" / "skills"
    assert os.access(place / "notes" / "scripts" / "run.sh", os.X_OK)
    assert (place / "tables" / "examples" / "inner" / "SKILL.md").exists()
    assert listed(home)["notes"]["origin"] == str(one)


@contextmanager
def served(answers: Mapping[str, tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers[self.path]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_archive_is_downloaded_and_its_address_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ARCHIVE_BYTES", 1000)
    monkeypatch.setattr("gateway.cli.skills.ARCHIVE_BYTES", 1000)
    answers = {
        "/notes.zip": (200, {}, zipped({"notes/SKILL.md": SKILL})),
        "/moved.zip": (302, {"Location": "http://169.254.169.254/"}, b""),
        "/large.zip": (200, {}, b"PK" + b"x" * 1000),
        "/page": (200, {}, b"<html>"),
        "/gone.zip": (404, {}, b""),
    }
    with served(answers) as address:
        assert skills(home, "add", f"{address}/notes.zip", typed="y\n").exit_code == 0
        assert listed(home)["notes"]["origin"] == f"{address}/notes.zip"
        for path, sentence in {
            "/moved.zip": "redirects to another address, which is not followed",
            "/large.zip": "sent more than 1000 bytes",
            "/page": "neither a zip nor a tar.gz archive",
            "/gone.zip": "answered with status 404",
        }.items():
            refused = skills(home, "add", f"{address}{path}", "--yes")
            assert (refused.exit_code, sentence in refused.stderr) == (2, True), refused.stderr
    for address in ("http://example.org/a.zip", "ftp://127.0.0.1/a.zip", "file:///etc/passwd"):
        assert "https addresses only" in skills(home, "add", address, "--yes").stderr


def test_json_never_asks(home: Path, tmp_path: Path) -> None:
    refused = skills(home, "add", str(put(tmp_path, "notes")), "--json", typed="y\n")
    assert (refused.exit_code, states(home)) == (2, {})


# --- checking ---------------------------------------------------------------------------------------------------------


def check(source: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["skills", "check", str(source), *options])


def test_a_check_says_each_fault_in_a_sentence(tmp_path: Path) -> None:
    good = check(SAMPLES / "pdf-forms")
    assert (good.exit_code, good.stdout) == (0, f"{SAMPLES / 'pdf-forms'}: follows the convention.\n")

    checked = {each["name"]: each for each in json.loads(check(SAMPLES, "--json").stdout)}
    assert {name for name, each in checked.items() if not each["faults"]} == {
        "pdf-forms", "review-checklist", "translate-zh",
    }  # fmt: skip
    assert all(each["usable"] for each in checked.values())
    assert checked["meeting-notes"]["faults"] == [
        "The front matter has fields that the convention does not define: tags, version.",
        "The name 'meeting-notes' differs from that of the folder, 'Meeting Notes'.",
    ]

    bad = put(tmp_path, "bad")
    (bad / "link").symlink_to("SKILL.md")
    refused = check(bad)
    assert refused.exit_code == 1
    assert "'link' is a symbolic link; links are not followed." in refused.stdout
    assert check(tmp_path / "nowhere").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert "neither it nor a folder in it has a SKILL.md" in check(tmp_path / "empty").stderr


# --- hostile archives -------------------------------------------------------------------------------------------------


def refusal(content: bytes) -> str:
    with pytest.raises(SkillInvalid) as caught:
        skills_in_archive(content)
    return str(caught.value)


@pytest.mark.parametrize("make", [zipped, tarred])
@pytest.mark.parametrize(
    "path",
    ["../SKILL.md", "/etc/passwd", "a/../../b", "a//b", "a\\..\\b", "C:x", "a/./b", "a\u202eb", " a", "a.", "..", "x" * 200],
)
def test_paths_that_leave_the_folder_are_refused(make: Any, path: str) -> None:
    assert refusal(make({"SKILL.md": SKILL, path: b"x"})).startswith("The name ")


@pytest.mark.parametrize("make", [zipped, tarred])
def test_names_that_are_one_file_elsewhere_are_refused_in_archives(make: Any) -> None:
    assert "differ only in case" in refusal(make({"SKILL.md": SKILL, "a.py": b"x", "A.py": b"y"}))


def test_the_same_name_twice_is_refused() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("SKILL.md", b"other")
    assert "contains 'SKILL.md' twice" in refusal(made.getvalue())


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_archives_are_refused(kind: bytes) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, type_ in (("SKILL.md", tarfile.REGTYPE), ("x", kind)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = type_, "/etc/passwd"
            archive.addfile(member, io.BytesIO())
    assert "'x' in the archive is a link or a device" in refusal(made.getvalue())


def test_a_link_in_a_zip_is_refused() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        link = zipfile.ZipInfo("x")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "'x' in the archive is a link or a device" in refusal(made.getvalue())


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_compression_whose_result_cannot_be_bounded_is_refused(method: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("SKILL.md", SKILL)
    assert "'SKILL.md' is encrypted, or compressed by an unusual method." in refusal(made.getvalue())


def bombs() -> dict[str, bytes]:
    zeros = bytes(MOST_BYTES + 1)
    lies = bytearray(zipped({"SKILL.md": zeros}))
    for signature, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<L", lies, lies.index(signature) + at, 100)  # says that it has 100 bytes
    many = zipped({f"{at:06}": b"" for at in range(15_000)})
    return {
        "one large file in a zip": zipped({"SKILL.md": zeros}),
        "many files that are large together": zipped({f"{at}": zeros[: 2**20] for at in range(40)}),
        "a wrong size": bytes(lies),
        "many files": many,
        "one large file in a tar": tarred({"SKILL.md": zeros}),
        "a tar that is large": gzip.compress(bytes(2 * MOST_BYTES + 1)),
    }


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_within_bounded_memory(name: str) -> None:
    tracemalloc.start()
    try:
        refusal(BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 5 * MOST_BYTES
    finally:
        tracemalloc.stop()


def test_a_damaged_archive_is_refused_wherever_it_is_cut() -> None:
    for whole in (zipped({"notes/SKILL.md": SKILL}), tarred({"notes/SKILL.md": SKILL})):
        assert [each.name for each in skills_in_archive(whole)] == ["notes"]
        for cut in range(2, len(whole) - 1):
            with pytest.raises(SkillInvalid):
                unpack(whole[:cut])
        flipped = bytearray(whole)
        for at in range(2, len(whole)):
            flipped[at] ^= 0xFF
            try:
                for path in unpack(bytes(flipped)):
                    assert ".." not in path.split("/")
            except SkillInvalid:
                pass
            flipped[at] ^= 0xFF


def test_an_existing_skill_survives_a_failed_replacement(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = put(tmp_path, "notes")
    skills(home, "add", str(source), "--yes")
    (source / "more.md").write_text("x")
    rename = os.rename

    def failing(old: Any, new: Any) -> None:
        if str(old).endswith(".new") and Path(new).name == "notes":
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", failing)
    assert skills(home, "add", str(source), "--yes").exit_code == 2
    monkeypatch.undo()
    assert states(home) == {"notes": "admitted"}
    assert [path.name for path in (home / "workspace" / "skills").iterdir()] == ["notes"]
