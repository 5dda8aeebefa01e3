"""The memory and the time of an import: a large export of ChatGPT, sessions of OpenClaw, and a log of `llm`."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, figure
from benchmarks.process import ROOT
from benchmarks.setting import Setting

BAR_MB = 256.0
"""Megabytes of memory that an import may take, however large the source is."""

TALK_MESSAGES, MESSAGE_CHARACTERS = 40, 5000

BEGAN = 1_767_225_600.0
"""The time of the first conversation, in seconds since the epoch."""


def run(setting: Setting) -> list[Figure]:
    """Import `setting.import_megabytes` from each program."""
    figures = []
    for program, write in (("chatgpt", _chatgpt), ("openclaw", _openclaw), ("llm", _llm)):
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            source, home = Path(folder) / "source", Path(folder) / "home"
            source.mkdir()
            write(source, setting.import_megabytes)
            size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file()) / 1e6
            figures += _imported(f"{size:,.0f} MB of {program}", program, source, home)
    return figures


def _imported(name: str, program: str, source: Path, home: Path) -> list[Figure]:
    """Import twice and return the figures. The second time, everything is there already."""
    found = []
    for what in ("imported", "imported again"):
        began = time.monotonic()
        megabytes = _peak([sys.executable, "-m", "exuvia", "import", program, str(source), "--home", str(home)])
        seconds = time.monotonic() - began
        measure, holds = f"{name}, {what}: memory", megabytes < BAR_MB
        found.append(figure("imports", measure, "MB", [megabytes], against="bar", reference=BAR_MB, holds=holds))
        found.append(figure("imports", f"{name}, {what}", "s", [seconds]))
    return found


def _peak(command: list[str]) -> float:
    """Run a program, which must succeed, and return the peak of its resident memory in units of 10^6 bytes."""
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} exited with {process.returncode}.")
    return usage.ru_maxrss * 1024 / 1e6


def _talks(megabytes: int) -> Iterator[tuple[int, list[tuple[str, str, float]]]]:
    """Yield the numbers and messages of conversations: role, text and time."""
    rng, written, number = random.Random(5), 0, 0
    words = [f"{a}{b}" for a in ("tide", "crab", "reef", "harbour", "sand") for b in ("s", " rises", " sleeps", " 28", ".")]
    while written < megabytes * 1_000_000:
        began = BEGAN + 3600 * number
        talk = []
        for at in range(TALK_MESSAGES):
            text = " ".join(rng.choices(words, k=MESSAGE_CHARACTERS // 10))
            talk.append(("user" if at % 2 == 0 else "assistant", text, began + at))
            written += len(text)
        yield number, talk
        number += 1


def _chatgpt(folder: Path, megabytes: int) -> None:
    with (folder / "conversations.json").open("w") as file:
        file.write("[")
        for number, talk in _talks(megabytes):
            nodes: dict[str, Any] = {}
            for at, (role, text, when) in enumerate(talk):
                content = {"content_type": "text", "parts": [text]}
                message = {"id": f"n{at}", "author": {"role": role}, "content": content, "create_time": when}
                nodes[f"n{at}"] = {
                    "id": f"n{at}",
                    "parent": f"n{at - 1}" if at else None,
                    "children": [],
                    "message": message,
                }
            conversation = {
                "id": f"c-{number}",
                "title": f"Talk {number}",
                "create_time": talk[0][2],
                "current_node": f"n{len(talk) - 1}",
                "mapping": nodes,
            }
            file.write("," if number else "")
            json.dump(conversation, file)
        file.write("]")


def _openclaw(folder: Path, megabytes: int) -> None:
    sessions = folder / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    for number, talk in _talks(megabytes):
        with (sessions / f"s-{number}.jsonl").open("w") as file:
            for at, (role, text, when) in enumerate(talk):
                message = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": when * 1000}
                line = {"type": "message", "id": f"e{at}", "parentId": f"e{at - 1}" if at else None, "message": message}
                file.write(f"{json.dumps(line)}\n")


def _llm(folder: Path, megabytes: int) -> None:
    with closing(sqlite3.connect(folder / "logs.db")) as database, database:
        columns = "model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT, datetime_utc TEXT"
        database.execute(f"CREATE TABLE responses (id TEXT PRIMARY KEY, {columns})")
        for number, talk in _talks(megabytes):
            for at in range(0, len(talk), 2):
                (_, prompt, when), (_, response, _) = talk[at], talk[at + 1]
                stamped = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
                row = (f"{number}-{at:03}", "m", prompt, "", response, f"c-{number}", stamped)
                database.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", row)
