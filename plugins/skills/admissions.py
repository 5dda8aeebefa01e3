"""The log of admitted skills: which content of which skill a person agreed to, and a copy of it.

One JSON object per line, appended and synced under a lock, so that the gateway and the command line can both write. An
incomplete last line, left by a crash, was never acknowledged and is skipped. The copy of the admitted files beside the log
shows later what a change consists of.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from plugins.skills.skill_file import SkillInvalid
from plugins.skills.skill_folder import SkillFiles, read_folder, write_folder
from sessions.files.fsync import sync_folder

LOG = "admissions.jsonl"
"""The name of the log."""

SEARCHED = 4000
"""Maximum characters of a skill's headings that are kept for the search."""

Stamp = tuple[int, int, int, int]
"""The inode, size, modification and change time of a `SKILL.md`: while they are the same, it was not written."""


class Admission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's decision about one version of a skill.

    Attributes:
        at: The time in UTC (RFC 3339).
        by: The person.
        decision: `admitted`, or `revoked` for all versions of a skill of this name.
        name: The name of the skill.
        digest: The digest of all its files.
        description: The description.
        headings: The headings of its instructions.
        folder: The folder in which it was found.
        origin: Where it came from: the folder, or the address of an archive.
        stamp: The stamp of its `SKILL.md`.
    """

    at: str
    by: str
    decision: Literal["admitted", "revoked"] = "admitted"
    name: str
    digest: str = ""
    description: str = ""
    headings: tuple[str, ...] = ()
    folder: str = ""
    origin: str = ""
    stamp: Stamp | None = None


class Admitted(msgspec.Struct, frozen=True):
    """The admissions in force: by the name of the skill and the digest, the newest last; by digest; and by folder."""

    by_name: dict[str, dict[str, Admission]]
    by_digest: dict[str, Admission]
    by_folder: dict[str, Admission]


class Admissions:
    """The log in one folder of the home. All methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / LOG
        self._read: tuple[int, int, int] | None = None
        self._admitted = Admitted({}, {}, {})

    def current(self) -> Admitted:
        """Return the admissions in force. Raises OSError."""
        try:
            found = os.stat(self._log)
        except FileNotFoundError:
            self._read, self._admitted = None, Admitted({}, {}, {})
            return self._admitted
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp != self._read:
            self._admitted = _folded(self._log.read_bytes())
            self._read = stamp
        return self._admitted

    def admit(self, admission: Admission, files: SkillFiles) -> None:
        """Append an admission and keep a copy of the files; durable when it returns. Raises OSError."""
        with self._locked() as log:
            copy = self._folder / admission.digest
            if not copy.exists():
                write_folder(copy, files.content)
            self._append(log, admission)
        kept = {digest for versions in self.current().by_name.values() for digest in list(versions)[-1:]}
        for entry in self._folder.iterdir():  # a copy serves only for the comparison with the next version
            if entry.is_dir() and not entry.name.startswith(".") and entry.name not in kept:
                shutil.rmtree(entry, ignore_errors=True)

    def revoke(self, name: str, at: str, by: str) -> None:
        """Append that no version of a skill is admitted any more. Raises OSError."""
        with self._locked() as log:
            self._append(log, Admission(at=at, by=by, decision="revoked", name=name))

    def copy_of(self, name: str) -> Mapping[str, bytes]:
        """Return the files of the newest admitted version of a skill; empty if there is none, or no copy of it."""
        versions = self.current().by_name.get(name)
        try:
            return read_folder(self._folder / next(reversed(versions))).content if versions else {}
        except (OSError, SkillInvalid):
            return {}

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the log for appending, exclusively among all processes."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(self._log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(log, fcntl.LOCK_EX)
            yield log
        finally:
            os.close(log)

    def _append(self, log: int, admission: Admission) -> None:
        end = os.fstat(log).st_size
        torn = end > 0 and os.pread(log, 1, end - 1) != b"\n"
        line = b"\n" * torn + msgspec.json.encode(admission) + b"\n"
        if os.write(log, line) < len(line):
            os.ftruncate(log, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(log)
        if not end:
            sync_folder(self._folder)


def _folded(content: bytes) -> Admitted:
    decode = msgspec.json.Decoder(Admission).decode
    by_name: dict[str, dict[str, Admission]] = {}
    for line in content.split(b"\n"):
        try:
            admission = decode(line)
        except msgspec.MsgspecError:
            continue
        versions = by_name.setdefault(admission.name, {})
        if admission.decision == "revoked":
            versions.clear()
        else:
            versions.pop(admission.digest, None)  # the newest admission is the last
            versions[admission.digest] = admission
    every = [each for versions in by_name.values() for each in versions.values()]
    return Admitted(by_name, {each.digest: each for each in every}, {each.folder: each for each in every})
