"""Attachments on a real disk: durable, one person's, and gone only when nobody ever named them."""

from __future__ import annotations

import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest

from sessions.attachments.attachment_refs import AttachmentReference, digests_in, references_in
from sessions.attachments.store import Attachments, Draft
from sessions.events.errors import StorageFailed
from sessions.events.events import CallRef, Event, MessageReceived, ToolReturned
from sessions.events.messages import Attachment
from sessions.files.journal_folder import JournalFolder
from tests.pictures import png
from tests.sessions.journal_files import messages, write_journal
from tests.stored import stored
from tests.stories import received

DAY = 86_400.0


def kept(folder: Path) -> Attachments:
    return Attachments(folder / "attachments")


def age(folder: Path, seconds: float) -> None:
    """Give every file of the folder this age."""
    for path in folder.rglob("*"):
        os.utime(path, (time() - seconds, time() - seconds))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_a_file_is_stored_by_hash_for_its_person_and_described_from_its_content(tmp_path: Path) -> None:
    attachments, content = kept(tmp_path), png(300, 200)
    attachment = await attachments.store(content, "anna", claimed="text/html", name="a.png")
    digest = sha256(content).hexdigest()
    assert attachment == Attachment(
        sha256=digest, media="image/png", bytes=len(content), name="a.png", width=300, height=200
    )
    assert await attachments.read(digest) == content
    assert await attachments.find("anna", digest) == attachment
    assert files(tmp_path / "attachments") == {digest, f"owners/anna/{digest}.new"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "attachments").rglob("*") if path.is_file()}
    assert modes == {0o600}


async def test_an_empty_file_is_text(tmp_path: Path) -> None:
    attachment = await kept(tmp_path).store(b"", "anna", claimed="", name="")
    assert (attachment.media, attachment.bytes) == ("text/plain", 0)
    assert await kept(tmp_path).read(attachment.sha256) == b""


async def test_knowing_a_hash_gives_no_access_to_the_file(tmp_path: Path) -> None:
    attachments = kept(tmp_path)
    digest = (await attachments.store(b"secret", "anna", claimed="", name="diary.txt")).sha256
    for person in ("bert", "Anna", "anna/", "", "../anna", ".", "..", "%41nna"):
        assert await attachments.find(person, digest) is None
    for odd in ("../anna/" + digest, digest.upper(), digest + "\n", digest[:63], "", "owners"):
        assert await attachments.find("anna", odd) is None
        with pytest.raises(FileNotFoundError):
            await attachments.read(odd)


async def test_two_people_may_send_the_same_file_under_different_names(tmp_path: Path) -> None:
    attachments = kept(tmp_path)
    for person in ("anna", "Анна", "a.b", "ANNA"):
        attachment = await attachments.store(b"same", person, claimed="", name=f"{person}.txt")
        assert await attachments.find(person, attachment.sha256) == attachment
    assert len(list((tmp_path / "attachments" / "owners").iterdir())) == 4
    assert {path.name.lower() for path in (tmp_path / "attachments" / "owners").iterdir()} >= {"anna", "%41%4e%4e%41"}


async def test_an_altered_file_is_not_returned_and_sending_it_again_repairs_it(tmp_path: Path) -> None:
    attachments = kept(tmp_path)
    digest = (await attachments.store(b"as it was", "anna", claimed="", name="")).sha256
    attachments.path(digest).write_bytes(b"as it is!")
    with pytest.raises(FileNotFoundError, match="altered"):
        await attachments.read(digest)
    await attachments.store(b"as it was", "bert", claimed="", name="")
    assert await attachments.read(digest) == b"as it was"


async def test_the_content_is_durable_before_its_record_and_both_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachments = kept(tmp_path)
    await attachments.store(b"another", "anna", claimed="", name="")
    steps: list[str] = []

    def note(name: str) -> None:
        original = getattr(os, name)

        def called(first: Any, *rest: Any) -> Any:
            place = Path(os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else rest[0]).name
            steps.append(f"{name} {'draft' if place.startswith('.') else place[-4:]}")
            return original(first, *rest)

        monkeypatch.setattr(os, name, called)

    for name in ("fdatasync", "fsync", "replace", "rename"):
        note(name)
    digest = (await attachments.store(b"x", "anna", claimed="", name="")).sha256[-4:]
    content = ["fdatasync draft", f"replace {digest}", "fsync ents"]
    assert steps == [*content, "fdatasync draft", "fsync anna", "rename .new", "fsync anna"]


@pytest.mark.parametrize("step", ["fdatasync", "fsync"])
async def test_a_file_that_cannot_be_synced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    attachments = kept(tmp_path)
    await attachments.store(b"before", "anna", claimed="", name="")

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, step, fails)
        with pytest.raises(StorageFailed, match="Input/output error"):
            await attachments.store(b"after", "anna", claimed="", name="")
    assert await attachments.find("anna", sha256(b"after").hexdigest()) is None
    assert not list((tmp_path / "attachments").glob(".draft*"))


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(kept(tmp_path))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, draft._file.fileno())
    os.close(full)
    with pytest.raises(StorageFailed, match="No space left"):
        draft.write(b"x" * 10)
    draft.close()
    assert files(tmp_path) == set()


# --- what journals name -----------------------------------------------------------------------------------------------


def naming(*attachments: Attachment) -> MessageReceived:
    return msgspec.structs.replace(received("see", "n1"), attachments=attachments)


async def test_the_references_of_a_journal_are_its_attachments(tmp_path: Path) -> None:
    one, two = (Attachment(sha256=letter * 64, media="image/png", bytes=3, width=1, height=1) for letter in "ab")
    whole = ToolReturned(call=CallRef(of=3, index=0), outcome="returned", output="…", cut_from=9, whole="c" * 64)
    lying = received(f'"attachments":[{{"sha256":"{"d" * 64}"', "n3")
    events: list[Event] = [*messages(1, 2), naming(one, two), whole, lying]
    path, _, _ = write_journal(tmp_path, 1, *events)
    output = Attachment(sha256="c" * 64, media="text/plain", bytes=9)
    with stored(path).read() as lines:
        assert list(references_in(lines)) == [
            AttachmentReference(4, one),
            AttachmentReference(4, two),
            AttachmentReference(5, output),
        ]
        assert digests_in(lines) == {letter * 64 for letter in "abc"}


async def test_only_an_unused_upload_is_removed_after_a_day(tmp_path: Path) -> None:
    attachments, journals = kept(tmp_path), tmp_path / "sessions"
    named = await attachments.store(b"named", "owner", claimed="", name="")
    settled = await attachments.store(b"settled", "owner", claimed="", name="")
    output = (await attachments.keep(b"output of a tool", "owner")).sha256
    shared = await attachments.store(b"shared", "owner", claimed="", name="")
    write_journal(journals, 1, naming(named, settled))
    await attachments.settle("owner", (settled,))
    await attachments.store(b"orphan", "owner", claimed="", name="")
    (tmp_path / "attachments" / ".draft-1").write_bytes(b"half")
    await attachments.store(b"shared", "bert", claimed="", name="")
    age(tmp_path, 2 * DAY)
    await attachments.find("bert", shared.sha256)
    fresh = await attachments.store(b"fresh", "owner", claimed="", name="")

    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 1
    assert files(tmp_path / "attachments") == {
        named.sha256,
        settled.sha256,
        output,
        shared.sha256,
        fresh.sha256,
        *(f"owners/owner/{digest}" for digest in (named.sha256, settled.sha256, output)),
        f"owners/bert/{shared.sha256}.new",
        f"owners/owner/{fresh.sha256}.new",
    }
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 0


async def test_a_reference_in_a_damaged_line_protects_its_file(tmp_path: Path) -> None:
    attachments, journals = kept(tmp_path), tmp_path / "sessions"
    named = await attachments.store(b"named", "owner", claimed="", name="")
    path, _, _ = write_journal(journals, 1, naming(named))
    path.write_bytes(path.read_bytes().replace(b'"kind":"message_received"', b'"kind":"message_re\xffeived"'))
    age(tmp_path, 2 * DAY)
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 0
    shutil.rmtree(tmp_path / "attachments" / "owners")
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 0
    assert await attachments.read(named.sha256) == b"named"


async def test_nothing_is_removed_while_a_journal_cannot_be_read(tmp_path: Path) -> None:
    attachments, journals = kept(tmp_path), tmp_path / "sessions"
    orphan = await attachments.store(b"orphan", "owner", claimed="", name="")
    write_journal(journals, 1)
    (journals / "20261121-000000-unread.jsonl").mkdir()
    age(tmp_path, 2 * DAY)
    with pytest.raises(StorageFailed, match="Is a directory"):
        attachments.remove_orphans(JournalFolder(journals), time() - DAY)
    assert await attachments.read(orphan.sha256) == b"orphan"


async def test_an_old_upload_that_a_message_is_about_to_use_is_kept(tmp_path: Path) -> None:
    attachments, journals = kept(tmp_path), tmp_path / "sessions"
    waiting = await attachments.store(b"waiting", "owner", claimed="", name="")
    age(tmp_path, 2 * DAY)
    assert await attachments.find("owner", waiting.sha256) == waiting
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 0
    assert await attachments.read(waiting.sha256) == b"waiting"


async def test_lost_records_are_restored_from_the_journals(tmp_path: Path) -> None:
    attachments, journals = kept(tmp_path), tmp_path / "sessions"
    named = await attachments.store(png(), "owner", claimed="", name="p.png")
    write_journal(journals, 1, naming(named))
    for record in (tmp_path / "attachments" / "owners").rglob("*.new"):
        record.unlink()
    assert await attachments.find("owner", named.sha256) is None
    assert attachments.remove_orphans(JournalFolder(journals), 0.0) == 0
    assert await attachments.find("owner", named.sha256) == named


async def test_without_the_journals_nothing_is_removed(tmp_path: Path) -> None:
    attachments, journals = kept(tmp_path), tmp_path / "sessions"
    orphan = await attachments.store(b"orphan", "owner", claimed="", name="")
    age(tmp_path, 2 * DAY)
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 0
    assert await attachments.read(orphan.sha256) == b"orphan"
    journals.mkdir()
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 0
    write_journal(journals, 1)
    assert attachments.remove_orphans(JournalFolder(journals), time() - DAY) == 1


@pytest.mark.parametrize("damage", [b"{", b'{"name": "\xff"}'])
async def test_an_unreadable_record_is_ignored_and_written_again(damage: bytes, tmp_path: Path) -> None:
    attachments = kept(tmp_path)
    sent = await attachments.store(b"x", "anna", claimed="", name="x.txt")
    await attachments.settle("anna", (sent,))
    (record,) = (tmp_path / "attachments" / "owners" / "anna").iterdir()
    record.write_bytes(damage)
    assert await attachments.find("anna", sent.sha256) is None
    assert await attachments.store(b"x", "anna", claimed="", name="x.txt") == sent
    assert await attachments.find("anna", sent.sha256) == sent
