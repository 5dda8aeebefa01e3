"""Pictures and files from people to models, through a running gateway."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
import yarl
from structlog.testing import capture_logs

from gateway.http import uploads
from gateway.support import logs
from gateway.support.printable import sanitized_name
from plugins.testing.servers import openai_server
from sessions.attachments.store import Attachments
from tests.gateway.gateways import TOKEN, Client, Frame, Gateway, gateway
from tests.pictures import png
from tests.waiting import deadline, until

ANA = "a-token-for-ana-that-is-long-enough"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def upload(g: Gateway, content: bytes, *, name: str = "", media: str = "") -> Frame:
    headers = BEARER | ({"Content-Type": media} if media else {})
    body = BytesIO(content)
    async with g.http.post(f"{g.url}/attachments", params={"name": name}, data=body, headers=headers) as response:
        assert response.status == 201, await response.text()
        answer: Frame = await response.json()
        return answer


@asynccontextmanager
async def begun(
    g: Gateway, length: int, token: str = TOKEN
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Start an upload and send only its head."""
    host, port = g.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /attachments HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode())
    try:
        yield reader, writer
    finally:
        writer.close()


async def fetch(g: Gateway, digest: str, **headers: str) -> tuple[int, bytes]:
    url = yarl.URL(f"{g.url}/attachments/{digest}", encoded=True)  # sent as it stands here, points and all
    async with g.http.get(url, headers=BEARER | headers) as response:
        return response.status, await response.read()


async def attach(client: Client, *attachments: dict[str, Any], text: str = "Look!", id_: str = "a1") -> Frame:
    """Send a message with attachments and return its `accepted` or `error` frame."""
    await client.say("send", id=id_, session="main", text=text, attachments=list(attachments))
    return await client.until_answered(id_)


def data(content: bytes, **fields: str) -> dict[str, str]:
    return {"data": b64encode(content).decode(), **fields}


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def test_an_upload_is_stored_described_and_can_be_downloaded(tmp_path: Path) -> None:
    content = png(300, 200)
    digest = sha256(content).hexdigest()
    async with gateway(tmp_path) as g:
        answer = await upload(g, content, name="../../holiday.png", media="text/html")
        described = {"sha256": digest, "media": "image/png", "bytes": len(content), "name": "holiday.png"}
        assert answer == described | {"width": 300, "height": 200}
        async with g.http.get(f"{g.url}/attachments/{digest}", headers=BEARER) as response:
            assert await response.read() == content
            headers = response.headers
        assert headers["Content-Type"] == "image/png"
        assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''holiday.png"
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


async def test_uploads_and_downloads_need_a_token_and_our_origin(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        digest = (await upload(g, b"mine"))["sha256"]
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            (BEARER | {"Origin": "http://evil.example"}, 403),
            (BEARER | {"Host": "evil.example"}, 403),
        ):
            async with g.http.post(f"{g.url}/attachments", data=b"x", headers=headers) as response:
                assert response.status == status
            async with g.http.get(f"{g.url}/attachments/{digest}?token={TOKEN}", headers=headers) as response:
                assert response.status == status
        assert {path.name for path in (tmp_path / "attachments").iterdir()} == {digest, "owners"}


async def test_a_file_exists_only_for_its_person(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        digest = (await upload(g, b"a secret"))["sha256"]
        (tmp_path / "attachments" / "owners" / "owner").rename(tmp_path / "attachments" / "owners" / "anna")
        theirs = await fetch(g, digest)
        nobodys = await fetch(g, "0" * 64)
        assert theirs[0] == nobodys[0] == 404
        assert theirs[1].replace(digest.encode(), b"0" * 64) == nobodys[1]
        client = await g.connect()
        refused = await attach(client, {"sha256": digest})
        unknown = await attach(client, {"sha256": "0" * 64})
        assert refused["message"].replace(digest, "0" * 64) == unknown["message"]
        assert g.journals() == {}
        for odd in ("..%2f..%2ftoken", "owners", "%2e%2e", digest + "%00"):
            assert (await fetch(g, odd))[0] == 404


async def test_a_file_above_the_limit_is_refused_with_and_without_a_length(tmp_path: Path) -> None:
    async def drip() -> Any:
        for _ in range(3):
            yield b"x" * 50

    async with gateway(tmp_path, settings={"gateway.attachment_bytes": 100}) as g:
        for body in (b"x" * 101, drip()):
            async with g.http.post(f"{g.url}/attachments", data=body, headers=BEARER) as response:
                assert (response.status, (await response.json())["code"]) == (413, "too_large")
        assert (await upload(g, b"x" * 100))["bytes"] == 100
        assert len(list((tmp_path / "attachments").iterdir())) == 2


async def test_an_announced_file_above_the_limit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PIECE_SECONDS", 1.0)
    async with gateway(tmp_path) as g, begun(g, 10**9) as (reader, _), deadline():
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")


async def test_an_interrupted_upload_leaves_no_file(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, begun(g, 1000) as (_, writer), deadline():
        writer.write(b"x" * 500)
        while not list((tmp_path / "attachments").glob(".draft*")):
            await asyncio.sleep(0.005)
        writer.close()
        while list((tmp_path / "attachments").glob("*")):
            await asyncio.sleep(0.005)


async def test_a_stalled_upload_is_ended_and_frees_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path) as g, AsyncExitStack() as stack, deadline():
        slow = [await stack.enter_async_context(begun(g, 1000)) for _ in range(uploads.OF_ONE_PERSON)]
        while len(list((tmp_path / "attachments").glob(".draft*"))) < uploads.OF_ONE_PERSON:
            await asyncio.sleep(0.005)
        async with g.http.post(f"{g.url}/attachments", data=b"x", headers=BEARER) as response:
            assert (response.status, (await response.json())["code"]) == (503, "busy")
        for _, writer in slow:
            writer.close()
        while list((tmp_path / "attachments").glob(".draft*")):
            await asyncio.sleep(0.005)
        monkeypatch.setattr(uploads, "PIECE_SECONDS", 0.1)
        reader, _ = await stack.enter_async_context(begun(g, 1000))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        monkeypatch.undo()
        assert (await upload(g, b"x"))["bytes"] == 1
        assert not list((tmp_path / "attachments").glob(".draft*"))


@pytest.mark.parametrize("limit", ["PIECE_SECONDS", "UPLOAD_SECONDS"])
async def test_an_upload_below_the_minimum_rate_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(uploads, limit, 0.3)
    async with gateway(tmp_path) as g, begun(g, 100) as (reader, writer), deadline():
        answered = asyncio.create_task(reader.readline())
        for _ in range(100):
            if not answered.done():
                writer.write(b"x")
                await asyncio.sleep(0.05)
        assert (await answered).startswith(b"HTTP/1.1 408 ")
        assert not list((tmp_path / "attachments").glob(".draft*"))


async def test_one_persons_uploads_leave_slots_for_others(tmp_path: Path) -> None:
    people = f'[agent]\nmodel = "scripted:echo"\n[people.ana]\ntoken = "{ANA}"\n'
    async with gateway(tmp_path, file=people) as g, AsyncExitStack() as stack, deadline():
        for _ in range(uploads.OF_ONE_PERSON):
            await stack.enter_async_context(begun(g, 1000))
        while len(list((tmp_path / "attachments").glob(".draft*"))) < uploads.OF_ONE_PERSON:
            await asyncio.sleep(0.005)
        async with g.http.post(f"{g.url}/attachments", data=b"x", headers=BEARER) as response:
            assert (response.status, (await response.json())["code"]) == (503, "busy")
        headers = {"Authorization": f"Bearer {ANA}"}
        async with g.http.post(f"{g.url}/attachments", data=b"hello", headers=headers) as response:
            assert response.status == 201, await response.text()


async def test_concurrent_uploads_are_limited_in_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "AT_ONCE", 2)
    people = f'[agent]\nmodel = "scripted:echo"\n[people.ana]\ntoken = "{ANA}"\n'
    async with gateway(tmp_path, file=people) as g, AsyncExitStack() as stack, deadline():
        for _ in range(2):
            await stack.enter_async_context(begun(g, 1000, ANA))
        while len(list((tmp_path / "attachments").glob(".draft*"))) < 2:
            await asyncio.sleep(0.005)
        async with g.http.post(f"{g.url}/attachments", data=b"x", headers=BEARER) as response:
            assert (response.status, await response.json()) == (
                503,
                {"code": "busy", "message": "Too many uploads are running; try again shortly."},
            )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\note.txt", "note.txt"),
        ("invoice\u202egpj.exe", "invoicegpj.exe"),
        ("one\nline\x1b[2J\u2028.txt", "oneline[2J.txt"),
        ("half \ud800.txt", "half \ufffd.txt"),
        ("x" * 300 + ".png", "x" * 196 + ".png"),
    ],
)
def test_a_file_name_is_sanitized(given: str, kept: str) -> None:
    assert sanitized_name(given) == kept


async def test_an_upload_whose_token_was_revoked_is_discarded(tmp_path: Path) -> None:
    echo = '[agent]\nmodel = "scripted:echo"\n'
    async with gateway(tmp_path, file=f'{echo}[people.ana]\ntoken = "{ANA}"\n') as g, deadline():
        ana = await g.connect(ANA)
        async with begun(g, 10, ANA) as (reader, writer):
            writer.write(b"hello")
            while not list((tmp_path / "attachments").glob(".draft*")):
                await asyncio.sleep(0.005)
            (tmp_path / "config.toml").write_text(echo)
            assert await ana.closed() == 4401
            writer.write(b"world")
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        assert list((tmp_path / "attachments").iterdir()) == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_compressed_upload_is_refused(tmp_path: Path, encoding: str) -> None:
    headers = BEARER | {"Content-Encoding": encoding}
    async with gateway(tmp_path) as g:
        async with g.http.post(f"{g.url}/attachments", data=b"\x1f\x8b no matter", headers=headers) as response:
            assert (response.status, (await response.json())["code"]) == (415, "bad_request")
        for path in ("/healthz", "/status.json"):  # nowhere else either
            async with g.http.get(f"{g.url}{path}", data=b"no gzip at all", headers=headers) as response:
                assert response.status == 200
        assert not (tmp_path / "attachments").exists()


async def test_an_interrupted_upload_is_logged_in_one_line(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        output = io.StringIO()
        logs.configure("info", "json", output)
        async with deadline():
            async with begun(g, 1000) as (_, writer):
                writer.write(b"hello")
                while not list((tmp_path / "attachments").glob(".draft*")):
                    await asyncio.sleep(0.005)
            while not output.getvalue():
                await asyncio.sleep(0.005)
        [line] = [json.loads(line) for line in output.getvalue().splitlines()]
    assert (line["event"], line["level"], line["person"], "exception" in line) == ("upload_cut", "info", "owner", False)


async def test_large_uploads_do_not_block_others(tmp_path: Path) -> None:
    content = b"\x00" * 8 * 1024 * 1024
    async with gateway(tmp_path) as g:
        client = await g.connect()
        uploads = asyncio.gather(*(upload(g, content + bytes([n])) for n in range(4)))
        longest = 0.0  # of this thread's processor time, which hashing and writing in it would take
        while not uploads.done():
            began = thread_time()
            await client.say("ping")
            await client.until_type("pong")
            longest = max(longest, thread_time() - began)
        assert len({answer["sha256"] for answer in await uploads}) == 4
        assert longest < 1.0


# --- in a message -----------------------------------------------------------------------------------------------------


async def test_the_attachments_of_an_accepted_message_are_durable(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        sent = await upload(g, png(4, 5), name="p.png")
        client = await g.connect()
        await attach(client, {"sha256": sent["sha256"]}, data(b"# Notes", media="text/markdown", name="n.md"))
        notes = sha256(b"# Notes").hexdigest()
        assert {sent["sha256"], notes} <= {path.name for path in (tmp_path / "attachments").iterdir()}
        received = (await client.until_event("message_received"))["attachments"]
        assert received == [sent, {"sha256": notes, "media": "text/markdown", "bytes": 7, "name": "n.md"}]
        await client.until_event("turn_ended")
        records = tmp_path / "attachments" / "owners" / "owner"
        await until(lambda: {path.name for path in records.iterdir()} == {sent["sha256"], notes})
        assert (await fetch(g, notes))[1] == b"# Notes"


async def test_a_message_with_invalid_attachments_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"gateway.attachment_bytes": 100}) as g:
        client = await g.connect()
        for number, (attachments, text, code) in enumerate(
            [
                ([data(b"kept?"), {"sha256": "0" * 64}], "x", "bad_request"),
                ([{"media": "text/plain"}], "x", "bad_request"),
                ([{"sha256": "0" * 64, "data": "eA=="}], "x", "bad_request"),
                ([data(b"x" * 101)], "x", "bad_request"),
                ([data(b"x")], "/status", "bad_request"),
                ([], " ", "bad_request"),
                ([{"sha256": "../../token"}], "x", "bad_frame"),
                ([{"data": "no base64!"}], "x", "bad_frame"),
                ([data(b"x")] * 21, "x", "bad_frame"),
            ]
        ):
            answer = await attach(client, *attachments, text=text, id_=f"r{number}")
            assert (answer["type"], answer["code"]) == ("error", code), answer
            assert answer["message"].count(". ") == 0
        assert g.journals() == {}
        assert not (tmp_path / "attachments").exists()


async def test_the_same_message_with_the_same_files_is_a_duplicate_and_with_others_a_conflict(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        first = await attach(client, data(b"one"), data(b"two"))
        again = await attach(client, {"sha256": sha256(b"one").hexdigest()}, data(b"two"))
        assert (again["seq"], again["duplicate"], first["duplicate"]) == (first["seq"], True, False)
        for other in ([data(b"one")], [data(b"two"), data(b"one")], [], [data(b"one"), data(b"TWO")]):
            assert (await attach(client, *other))["code"] == "conflict"
    async with gateway(tmp_path) as g:
        client = await g.connect()
        assert (await attach(client, data(b"one"), data(b"two")))["duplicate"] is True
        assert (await attach(client, data(b"one")))["code"] == "conflict"


async def test_a_model_without_vision_reads_text_files_and_is_given_the_names_of_pictures(tmp_path: Path) -> None:
    text = b"```\nignore the fence\n```` and more"
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await attach(client, data(text, name="n.md", media="text/markdown"), data(png(3, 3), name="p.png"), text="")
        withheld = await client.until_event("attachments_withheld")
        reply = (await client.until_event("model_replied"))["text"]
        await client.until_event("turn_ended")
        digest, size = sha256(png(3, 3)).hexdigest(), len(png(3, 3))
        sentence = f"The model is not shown p.png, image/png, 3×3, {size} bytes: scripted:echo does not accept pictures."
        assert withheld["model"] == "scripted:echo"
        assert withheld["files"] == [{"sha256": digest, "sentence": sentence}]
        assert reply == (
            f"[attached: n.md, text/markdown, {len(text)} bytes]\n`````\n{text.decode()}\n`````\n\n"
            f"[attached: p.png, image/png, 3×3, {size} bytes; not shown: scripted:echo does not accept pictures]"
        )
        assert await client.chat("and now?") == "and now?"
        history = await client.command("/history 9")
        assert f"[attached: p.png, image/png, 3×3, {size} bytes: attachments/{digest}]" in history
        kinds = [event["kind"] for _, event in client.events()]
        assert kinds.count("attachments_withheld") == 1


async def test_a_missing_file_is_reported_and_the_conversation_continues(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        sent = await upload(g, b"soon gone", name="n.txt")
        (tmp_path / "attachments" / sent["sha256"]).unlink()
        await attach(client, {"sha256": sent["sha256"]})
        (file,) = (await client.until_event("attachments_withheld"))["files"]
        assert file["sentence"].endswith("n.txt, text/plain, 9 bytes: its file cannot be read.")
        assert "its file cannot be read" in (await client.until_event("model_replied"))["text"]


async def test_requests_are_hashed_with_references_to_attachments(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await attach(client, data(b"x" * 30_000, name="n.txt"))
        request = await client.until_event("request_sent")
        await client.until_event("turn_ended")
        (journal,) = g.journals().values()
        (head,) = (line for line in journal if line["kind"] == "instructions_set")
        (message,) = (line for line in journal if line["kind"] == "message_received")
        first = {"instructions": head["text"], "parameters": head["parameters"], "tools": head["tools"]}
        said = {"attachments": message["attachments"], "role": "user", "text": "Look!"}
        canonical = json.dumps([first, said], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert request["sha256"] == sha256(canonical.encode()).hexdigest()
        assert 10_000 < request["tokens"] < 13_000


@pytest.mark.parametrize("blocked", ["attachments", "attachments/owners"])
async def test_a_failing_disk_is_reported_and_nothing_is_accepted(tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("a file where the folder should be")
    async with gateway(tmp_path) as g:
        client = await g.connect()
        answer = await attach(client, data(b"x"))
        assert (answer["type"], answer["code"]) == ("error", "storage_failed")
        async with g.http.post(f"{g.url}/attachments", data=b"x", headers=BEARER) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert (await fetch(g, "0" * 64))[0] == 503
        assert (await attach(client, {"sha256": "0" * 64}))["code"] == "storage_failed"
        assert g.journals() == {}
        assert await client.chat("hi") == "hi"


async def test_the_running_gateway_removes_uploads_that_no_message_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(uploads, "ORPHAN_SECONDS", 3.0)
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await attach(client, data(b"named"))
        orphan = (await upload(g, b"orphan"))["sha256"]
        await until(lambda: not (tmp_path / "attachments" / orphan).exists())
        assert (await fetch(g, orphan))[0] == 404
        assert (await fetch(g, sha256(b"named").hexdigest()))[1] == b"named"
        assert {path.name for path in (tmp_path / "attachments").iterdir()} == {sha256(b"named").hexdigest(), "owners"}


async def test_a_removal_of_uploads_that_fails_unexpectedly_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, sweeps = Attachments.remove_orphans, list[int]()

    def fail_once(self: Attachments, *given: Any) -> int:
        sweeps.append(1)
        if len(sweeps) == 1:
            raise RuntimeError("can't start new thread")
        return remove(self, *given)

    monkeypatch.setattr(Attachments, "remove_orphans", fail_once)
    monkeypatch.setattr(uploads, "SWEEP_SECONDS", 0.05)
    with capture_logs() as lines:
        async with gateway(tmp_path):
            await until(lambda: len(sweeps) > 2)
    [failed] = [each for each in lines if each["event"] == "orphans_not_removed"]
    assert (failed["kind"], failed["reason"]) == ("RuntimeError", "can't start new thread")


async def test_an_uploaded_picture_is_sent_to_the_provider_and_counted_in_tokens(tmp_path: Path) -> None:
    content = png(512, 512)
    async with openai_server.OpenAIServer(openai_server.ScriptedResponse("A grey square.")).serving() as server:
        own = {"base_url": server.url, "api_key": openai_server.KEY, "pictures": True}
        settings = {"agent.model": "openai:some-model"} | {f"providers.openai.{key}": value for key, value in own.items()}
        async with gateway(tmp_path, settings=settings) as g:
            client = await g.connect()
            await attach(client, {"sha256": (await upload(g, content))["sha256"]}, text="What is this?")
            request = await client.until_event("request_sent")
            assert (await client.until_event("model_replied"))["text"] == "A grey square."
            await client.until_event("turn_ended")
    (asked,) = server.requests
    url = f"data:image/png;base64,{b64encode(content).decode()}"
    assert asked["messages"][-1]["content"] == [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "What is this?"},
    ]
    assert request["tokens"] > 1600
    assert "attachments_withheld" not in [event["kind"] for _, event in client.events()]
