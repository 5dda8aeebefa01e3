"""Pictures and files of other programs' messages become attachments where the source has their bytes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import TOKEN, gateway
from tests.imports.sources import LISBON, digests, events, imported, node, run, tree
from tests.pictures import png

PICTURE = png(3, 2)
REPORT = b"Low tide at noon.\n"


def part(pointer: str) -> dict[str, Any]:
    return {"content_type": "image_asset_pointer", "asset_pointer": pointer, "width": 3, "height": 2}


def chatgpt_export(path: Path) -> Path:
    """Write an export with a picture, an attached file, one that is missing, and a picture that a tool made."""
    asked = node("a", None, "user", "", LISBON)
    parts = [part("sediment://file_01"), part("file-service://file-gone"), "What is this?"]
    asked["message"]["content"] = {"content_type": "multimodal_text", "parts": parts}
    attached = [{"id": "file_01", "name": "crab.png", "mimeType": "image/png"}, {"id": "file-02", "name": "tides.txt"}]
    asked["message"]["metadata"] = {"attachments": attached}
    call = node("b", "a", "assistant", '{"prompt": "a crab"}', LISBON + 1)
    call["message"]["recipient"] = "dalle.text2im"
    drawn = node("c", "b", "tool", "", LISBON + 2)
    drawn["message"]["content"] = {"content_type": "multimodal_text", "parts": [part("file-service://file-03")]}
    talk = tree("1", "Crabs", asked, call, drawn, node("d", "c", "assistant", "A crab.", LISBON + 3))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([talk]))
        archive.writestr("file_01-crab.png", PICTURE)
        archive.writestr("file-02-tides.txt", REPORT)
        archive.writestr("dalle-generations/file-03-uuid.webp", png(5, 5))
    return path


def claude_export(folder: Path) -> Path:
    folder.mkdir()
    files = [{"file_uuid": "u-1", "file_name": "crab.png"}, {"file_uuid": "u-2", "file_name": "gone.png"}]
    messages = [{"uuid": "1", "sender": "human", "text": "", "content": [], "files": files}]
    (folder / "conversations.json").write_text(json.dumps([{"uuid": "c", "name": "Crabs", "chat_messages": messages}]))
    (folder / "files").mkdir()
    (folder / "files" / "crab.png").write_bytes(PICTURE)
    return folder


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def open_webui_home(folder: Path) -> Path:
    files: list[dict[str, Any]] = [
        {"type": "image", "url": data_url(PICTURE)},
        {"type": "file", "id": "f-1", "name": "tides.txt"},
        {"type": "image", "url": "/api/v1/files/f-gone/content"},
    ]
    message = {"id": "1", "parentId": None, "role": "user", "content": "What is this?", "files": files}
    (folder / "uploads").mkdir(parents=True)
    (folder / "uploads" / "f-1_tides.txt").write_bytes(REPORT)
    with sqlite3.connect(folder / "webui.db") as database:
        database.execute("CREATE TABLE chat (id TEXT, user_id TEXT, title TEXT, chat TEXT, created_at INTEGER)")
        chat = json.dumps({"history": {"messages": {"1": message}, "currentId": "1"}})
        database.execute("INSERT INTO chat VALUES ('c', 'ana', 'Crabs', ?, 1777622400)", (chat,))
    database.close()
    return folder


def openclaw_home(folder: Path) -> Path:
    blocks = [{"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"}]
    line = {"type": "message", "id": "e", "message": {"role": "user", "content": blocks, "timestamp": 1777622400000}}
    sessions = folder / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "s.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def llm_log(folder: Path) -> Path:
    """Write a log with a picture in it, one that was named by its path, and one by a URL."""
    folder.mkdir()
    (folder / "tides.txt").write_bytes(REPORT)
    attachments = [
        (hashlib.sha256(PICTURE).hexdigest(), "image/png", None, None, PICTURE),
        (hashlib.sha256(REPORT).hexdigest(), "text/plain", str((folder / "tides.txt").absolute()), None, None),
        ("of-a-url", "image/png", None, "https://example.org/crab.png", None),
    ]
    with sqlite3.connect(folder / "logs.db") as database:
        columns = "model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT, datetime_utc TEXT"
        database.execute(f"CREATE TABLE responses (id TEXT, {columns})")
        database.execute("INSERT INTO responses VALUES ('r', 'm', 'What is this?', '', '', 'c', '2026-02-01T10:00:00')")
        database.execute("CREATE TABLE attachments (id TEXT, type TEXT, path TEXT, url TEXT, content BLOB)")
        database.executemany("INSERT INTO attachments VALUES (?, ?, ?, ?, ?)", attachments)
        database.execute('CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER)')
        rows = [("r", id_, order) for order, (id_, *_) in enumerate(attachments)]
        database.executemany("INSERT INTO prompt_attachments VALUES (?, ?, ?)", rows)
    database.close()
    return folder


def attached(home: Path) -> list[tuple[str, str, str, bytes]]:
    """Return the attachments of all events: kind, name, media type and content."""
    found = []
    for journal in sorted((home / "sessions").glob("*.jsonl")):
        for line in events(home, journal.stem):
            for file in line.get("attachments", []):
                content = (home / "attachments" / file["sha256"]).read_bytes()
                assert hashlib.sha256(content).hexdigest() == file["sha256"]
                found.append((line["kind"], file.get("name", ""), file["media"], content))
    return found


CRAB = ("message_imported", "crab.png", "image/png", PICTURE)
TIDES = ("message_imported", "tides.txt", "text/plain", REPORT)
SOURCES = {
    "chatgpt": (chatgpt_export, [CRAB, TIDES, ("tool_returned", "file-03-uuid.webp", "image/png", png(5, 5))], 1),
    "claude": (claude_export, [CRAB], 1),
    "open-webui": (open_webui_home, [("message_imported", "", "image/png", PICTURE), TIDES], 1),
    "openclaw": (openclaw_home, [("message_imported", "", "image/png", PICTURE)], 0),
    "llm": (llm_log, [("message_imported", "", "image/png", PICTURE), TIDES], 1),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_files_become_attachments_and_missing_ones_are_counted(tmp_path: Path, kind: str) -> None:
    make, expected, missing = SOURCES[kind]
    home, source = tmp_path / "home", make(tmp_path / "source.zip")
    planned = imported(home, kind, source, "--dry-run")
    assert not (home / "attachments").exists()
    report = imported(home, kind, source)
    assert report["items"] == planned["items"] == {"conversations": {"new": 1}, "files": {"new": len(expected)}}
    assert attached(home) == expected
    assert sum(each["count"] for each in report["left_out"] if each["kind"] == "files") == missing
    assert run("sessions", "verify", "--home", home).exit_code == 0
    before = digests(home / "attachments")
    assert imported(home, kind, source)["items"] == {"conversations": {"unchanged": 1}}
    assert digests(home / "attachments") == before


def test_an_erased_file_does_not_come_back(tmp_path: Path) -> None:
    home, source = tmp_path / "home", openclaw_home(tmp_path / "source")
    imported(home, "openclaw", source)
    (opened,) = (events(home, path.stem)[0] for path in (home / "sessions").glob("*.jsonl"))
    assert run("erase", "message", opened["key"], "2", "--home", home, "--yes").exit_code == 0
    imported(home, "openclaw", source)
    assert not any(path.read_bytes() == PICTURE for path in home.rglob("*") if path.is_file())


def test_a_file_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[gateway]\nattachment_bytes = 10\n")
    report = imported(home, "openclaw", openclaw_home(tmp_path / "source"))
    assert [(each["kind"], each["reason"]) for each in report["left_out"]] == [
        ("files", "larger than 10 bytes (`gateway.attachment_bytes`)")
    ]
    assert attached(home) == []


async def test_a_running_gateway_stores_them_and_shows_them_to_their_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXUVIA_TOKEN", TOKEN)
    home, source = tmp_path / "home", chatgpt_export(tmp_path / "source.zip")
    async with gateway_process(home) as running, aiohttp.ClientSession() as http:
        report = await asyncio.to_thread(imported, home, "chatgpt", source)
        assert report["items"] == {"conversations": {"new": 1}, "files": {"new": 3}}
        place = f"http://127.0.0.1:{running.port}/attachments/{hashlib.sha256(PICTURE).hexdigest()}"
        async with http.get(place, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert await response.read() == PICTURE
    assert len(attached(home)) == 3


async def test_an_import_gives_nobody_a_file_of_somebody_else(tmp_path: Path) -> None:
    ben = "the-token-of-ben-is-long-enough"
    async with gateway(tmp_path, settings={"people.ben.token": ben}) as running:
        async with running.http.post(
            f"{running.url}/attachments?name=mine.png", data=PICTURE, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as response:
            file = await response.json()
        message = {"id": "1", "reply": False, "text": "Look", "attachments": [file]}
        body = {"program": "chatgpt", "conversation": {"id": "c", "messages": [message]}}
        headers = {"Authorization": f"Bearer {ben}"}
        async with running.http.post(f"{running.url}/api/imports", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
        async with running.http.get(f"{running.url}/attachments/{file['sha256']}", headers=headers) as response:
            assert response.status == 404
    assert attached(tmp_path) == []
