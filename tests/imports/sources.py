"""Small exports of other programs, written by hand, and the import of them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from gateway.cli.main import cli

LISBON = 1_700_000_000.5


def run(*arguments: str | Path) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def imported(home: Path, kind: str, path: Path, *options: str) -> dict[str, Any]:
    """Import and return the report; the command must succeed."""
    result = run("import", kind, path, "--home", home, "--json", *options)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.output)
    return report


def journals(home: Path) -> dict[str, str]:
    """Return the SHA-256 of each journal of a home."""
    return digests(home / "sessions")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder, and the times of their last change."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def events(home: Path, session: str) -> list[dict[str, Any]]:
    """Return the events of a session."""
    return [json.loads(line) for line in (home / "sessions" / f"{session}.jsonl").read_text(encoding="utf-8").splitlines()]


def spoken(home: Path) -> dict[str, list[str]]:
    """Return the imported texts of each conversation by its key."""
    found = {}
    for path in sorted((home / "sessions").glob("*.jsonl")):
        lines = events(home, path.stem)
        key = next(line["key"] for line in reversed(lines) if line["kind"] in ("session_opened", "session_forked"))
        found[key] = [line["text"] for line in lines if line["kind"] in ("message_imported", "reply_imported")]
    return found


# --- ChatGPT --------------------------------------------------------------------------------------------------------------


def node(id_: str, parent: str | None, role: str, text: str, at: float | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a node of a conversation of ChatGPT."""
    content = {"content_type": "text", "parts": [text]}
    message = {"id": id_, "author": {"role": role}, "create_time": at, "content": content, "recipient": "all"}
    return {"id": id_, "parent": parent, "children": [], "message": {**message, "metadata": metadata}}


def tree(id_: str, title: str, *nodes: dict[str, Any], current: str = "", **fields: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT."""
    mapping = {each["id"]: each for each in nodes}
    known = {"id": id_, "conversation_id": id_, "title": title, "create_time": LISBON, "mapping": mapping}
    return {**known, "current_node": current or nodes[-1]["id"], **fields}


def lisbon(*more: dict[str, Any], current: str = "d") -> dict[str, Any]:
    """Return a conversation with two questions, and more nodes."""
    root: dict[str, Any] = {"id": "root", "message": None, "parent": None, "children": []}
    return tree(
        "11111111-aaaa",
        "Weekend in Lisbon",
        root,
        node("s", "root", "system", "", is_visually_hidden_from_conversation=True),
        node("a", "s", "user", "What shall I see in Lisbon?", LISBON),
        node("b", "a", "assistant", "The tram 28.", LISBON + 5, model_slug="gpt-4o"),
        node("c", "b", "user", "And to eat?", LISBON + 60),
        node("d", "c", "assistant", "Pastel de nata.", LISBON + 63, model_slug="gpt-4o"),
        *more,
        current=current,
    )


def chatgpt(path: Path, *conversations: dict[str, Any], name: str = "conversations.json") -> Path:
    """Write an archive with these conversations."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, json.dumps(conversations))
        archive.writestr("user.json", '{"email": "somebody@example.org"}')
    return path
