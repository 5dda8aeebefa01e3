"""The attachments of every store: one person's, described from their content, and gone only when nobody ever named them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from time import time

import psycopg
import pytest

from benchmarks.ports import free_port
from sessions.attachments.row_attachments import PART, PostgresAttachments
from sessions.attachments.store import Attachments
from sessions.events.errors import StorageFailed
from sessions.events.messages import Attachment
from sessions.files.journal_folder import JournalFolder
from sessions.postgres.connections import Database
from sessions.postgres.schema import migrate
from sessions.store.protocols import Blobs
from tests.pictures import png
from tests.servers.postgres_server import postgres_server
from tests.sessions.journal_files import write_journal
from tests.sessions.test_attachments import DAY, naming

ABSENT = sha256(b"never stored").hexdigest()


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@pytest.fixture(params=["files", "postgres"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    """The attachments in each of the stores."""
    if request.param == "files":
        yield Attachments(tmp_path / "attachments")
        return
    with Database(request.getfixturevalue("url")) as database:
        yield rows(database, tmp_path)


def rows(database: Database, folder: Path) -> PostgresAttachments:
    with database.connection() as connection:
        migrate(database, connection)
    return PostgresAttachments(database, folder / "attachments")


async def test_an_attachment_is_of_its_sender_and_described_from_its_content(blobs: Blobs) -> None:
    content = png(300, 200)
    sent = await blobs.store(content, "anna", claimed="text/html", name="a.png")
    digest = sha256(content).hexdigest()
    assert sent == Attachment(sha256=digest, media="image/png", bytes=len(content), name="a.png", width=300, height=200)
    assert await blobs.read(digest) == content
    assert await blobs.read(digest, lambda found: found[:4]) == content[:4]
    assert await blobs.find("anna", digest) == sent
    for person in ("bert", "Anna", "anna/", "", ".."):
        assert await blobs.find(person, digest) is None
    for odd in ("../anna/" + digest, digest.upper(), digest[:63], "", "owners"):
        assert await blobs.find("anna", odd) is None
        with pytest.raises(FileNotFoundError):
            await blobs.read(odd)
    assert (blobs.fault(digest), blobs.fault(ABSENT)) == ("", "is missing")


@pytest.mark.parametrize("size", [0, 1, PART, 2 * PART + 17])
async def test_a_content_of_any_size_is_returned_whole_and_as_a_file(blobs: Blobs, size: int) -> None:
    content = bytes(index % 251 for index in range(size))
    sent = await blobs.store(content, "anna", claimed="", name="")
    assert sent.bytes == size
    assert await blobs.read(sent.sha256) == content
    for _ in range(2):
        path = await blobs.file(sent.sha256)
        assert path is not None
        assert path.read_bytes() == content
    assert await blobs.file(ABSENT) is None


async def test_a_content_that_arrives_in_pieces_is_kept_or_leaves_nothing(blobs: Blobs) -> None:
    left = blobs.draft()
    left.write(b"half")
    left.close()
    draft = blobs.draft()
    try:
        for piece in (b"in ", b"pieces"):
            draft.write(piece)
        assert draft.path.read_bytes() == b"in pieces"
        sent = draft.keep("anna", claimed="", name="p.txt")
    finally:
        draft.close()
    assert (draft.size, await blobs.read(sent.sha256)) == (9, b"in pieces")
    assert not draft.path.exists()
    with pytest.raises(FileNotFoundError):
        await blobs.read(sha256(b"half").hexdigest())


async def test_the_records_name_each_owner(blobs: Blobs) -> None:
    sent = {}
    for person in ("anna", "Анна", "a.b", "ANNA"):
        sent[person] = await blobs.store(b"same", person, claimed="", name=f"{person}.txt")
        assert await blobs.find(person, sent[person].sha256) == sent[person]
    await blobs.settle("anna", (sent["anna"],))
    found = {person: (attachment, named) for person, attachment, named in blobs.records()}
    assert found == {person: (attachment, person == "anna") for person, attachment in sent.items()}


async def test_what_a_log_names_stays_and_what_nobody_used_goes(blobs: Blobs, tmp_path: Path) -> None:
    journals = tmp_path / "sessions"
    named = await blobs.store(b"named", "owner", claimed="", name="")
    output = await blobs.keep(b"output of a tool", "owner")
    orphan = await blobs.store(b"orphan", "owner", claimed="", name="")
    assert blobs.remove_orphans(JournalFolder(journals), time() + DAY) == 0  # without any log nothing is removed
    write_journal(journals, 1, naming(named))
    assert blobs.remove_orphans(JournalFolder(journals), time() - DAY) == 0
    assert blobs.remove_orphans(JournalFolder(journals), time() + DAY) == 1
    assert await blobs.find("owner", orphan.sha256) is None
    assert blobs.fault(orphan.sha256) == "is missing"
    assert await blobs.read(named.sha256) == b"named"
    assert await blobs.read(output.sha256) == b"output of a tool"
    assert [is_named for _, _, is_named in blobs.records()] == [True, True]


async def test_a_deletion_removes_what_no_other_session_of_the_person_and_nobody_else_has(
    blobs: Blobs, tmp_path: Path
) -> None:
    journals = tmp_path / "sessions"
    sent = {
        content: await blobs.store(content, "owner", claimed="", name="")
        for content in (b"gone", b"kept", b"of two", b"own")
    }
    await blobs.store(b"of two", "bert", claimed="", name="")
    await blobs.settle("owner", tuple(sent.values()))
    other = write_journal(journals, 1, naming(sent[b"kept"]))[0].stem
    digests = [sent[content].sha256 for content in (b"gone", b"kept", b"of two")]
    assert blobs.release("owner", digests, JournalFolder(journals), [other, "20261121-000009-absent"]) == (1, 4)
    assert blobs.fault(sent[b"gone"].sha256) == "is missing"
    assert await blobs.find("owner", sent[b"of two"].sha256) is None
    assert await blobs.find("bert", sent[b"of two"].sha256) is not None
    for content in (b"kept", b"own"):
        assert await blobs.find("owner", sent[content].sha256) == sent[content]
    assert blobs.release("owner", digests, JournalFolder(journals), [other]) == (0, 0)


# --- in the database --------------------------------------------------------------------------------------------------


async def test_an_altered_content_is_not_returned_and_sending_it_again_repairs_it(url: str, tmp_path: Path) -> None:
    with Database(url) as database:
        blobs = rows(database, tmp_path)
        digest = (await blobs.store(b"as it was", "anna", claimed="", name="")).sha256
        with psycopg.connect(url, autocommit=True) as outside:
            outside.execute("UPDATE exuvia.blob_part SET bytes = 'as it is!'")
        assert blobs.fault(digest) == "was altered"
        with pytest.raises(FileNotFoundError, match="altered"):
            await blobs.read(digest)
        await blobs.store(b"as it was", "bert", claimed="", name="")
        assert await blobs.read(digest) == b"as it was"


async def test_a_content_that_another_gateway_stores_again_meanwhile_is_not_removed(url: str, tmp_path: Path) -> None:
    with Database(url) as database:
        blobs = rows(database, tmp_path)
        sent = await blobs.store(b"twice", "anna", claimed="", name="")
        with psycopg.connect(url) as other:  # in the middle of storing it for somebody else
            other.execute("SELECT set_config('search_path', 'exuvia', false)")
            other.execute("DELETE FROM owner")
            other.commit()
            other.execute("UPDATE blob SET at = clock_timestamp() + interval '1 minute'")
            removing = asyncio.get_running_loop().run_in_executor(
                None, lambda: blobs.release("anna", [sent.sha256], JournalFolder(tmp_path), [])
            )
            other.execute("INSERT INTO owner VALUES ('bert', %s, '{}', false)", (sent.sha256,))
            other.commit()
            assert await removing == (0, 0)
        assert await blobs.read(sent.sha256) == b"twice"


async def test_while_the_database_cannot_be_reached_nothing_seems_to_be_missing(tmp_path: Path) -> None:
    with Database(f"postgresql://postgres@127.0.0.1:{free_port()}/none") as database:
        blobs = PostgresAttachments(database, tmp_path)
        assert blobs.fault(ABSENT).startswith("cannot be read")
        with pytest.raises(OSError, match="cannot be reached"):
            await blobs.read(ABSENT)
        with pytest.raises(StorageFailed):
            await blobs.store(b"x", "anna", claimed="", name="")
        with pytest.raises(StorageFailed):
            await blobs.find("anna", ABSENT)
