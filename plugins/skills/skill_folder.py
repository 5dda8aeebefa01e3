"""The files of a skill: reading them within limits, and the digest of all of them.

Files are opened below the folder without following links, and exactly the bytes that are read are digested. A folder with a
link, a device, a name that cannot be told from another, or too much in it is refused as a whole.
"""

from __future__ import annotations

import os
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path

import msgspec

from plugins.skills.skill_file import NAME, SkillInvalid
from plugins.support.safe_open import OutsideFolder, best_opener, open_plain
from sessions.files.fsync import sync_folder

MOST_FILES, MOST_BYTES, MOST_DEPTH = 1000, 32 * 1024 * 1024, 8
"""Limits of a folder: files, bytes of all files together, and folders in each other."""

TEXT_BYTES = 255 * 1024
"""Maximum bytes of a file that is shown; together with a heading, an answer stays below 256 KiB."""

_LEFT_OUT = frozenset({".git", ".DS_Store"})
"""Names at the top of a folder that do not belong to the skill."""

_LONGEST_NAME = 120


class SkillFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a skill: their content by path, in the order of their paths."""

    content: dict[str, bytes]

    @property
    def digest(self) -> str:
        """The SHA-256 of all paths and contents, in hexadecimal."""
        listed = [[path, len(content), sha256(content).hexdigest()] for path, content in self.content.items()]
        return sha256(msgspec.json.encode(listed)).hexdigest()

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self.content.values()))


def read_folder(folder: Path) -> SkillFiles:
    """Return the files of a skill. Blocks.

    Raises:
        SkillInvalid: The folder is refused; the message says why.
        OSError: It cannot be read.
    """
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise SkillInvalid("It is a symbolic link; name the folder to which it leads in skills.paths.") from error
    try:
        paths = sorted(_paths(root, ()))
        check_names(paths, MOST_FILES)
        content, left = {}, MOST_BYTES
        for path in paths:
            content[path] = _read(root, path, left)
            left -= len(content[path])
    finally:
        os.close(root)
    if NAME not in content:
        raise SkillInvalid(f"The folder has no {NAME}.")
    return SkillFiles(content=content)


def _paths(folder: int, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths of all files below an open folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = (*above, entry.name)
            if not above and entry.name in _LEFT_OUT:
                continue
            if entry.is_symlink():
                raise SkillInvalid(f"{'/'.join(parts)!r} is a symbolic link; links are not followed.")
            if not entry.is_dir(follow_symlinks=False):
                yield "/".join(parts)
                continue
            if len(parts) == MOST_DEPTH:
                raise SkillInvalid(f"The folder has more than {MOST_DEPTH} folders in each other.")
            below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                yield from _paths(below, parts)
            finally:
                os.close(below)


def check_names(paths: Iterable[str], most: int = MOST_FILES) -> None:
    """Refuse paths that cannot be told apart, or that mean something else on another system, and more than `most`.

    Raises SkillInvalid.
    """
    seen: dict[str, str] = {}
    for count, path in enumerate(paths, 1):
        if count > most:
            raise SkillInvalid(f"There are more than {most:,} files.")
        for part in path.split("/"):
            if part in ("", ".", "..") or "\\" in part or ":" in part or len(part) > _LONGEST_NAME:
                raise SkillInvalid(f"The name {path[:200]!r} is not that of a file in a folder.")
            if not part.isprintable() or part != part.strip() or part.endswith("."):
                raise SkillInvalid(f"The name {path[:200]!r} has invisible characters, or ends with a space or a dot.")
        folded = unicodedata.normalize("NFKC", path).casefold()
        other = seen.setdefault(folded, path)
        if other != path:
            raise SkillInvalid(f"The names {other!r} and {path!r} differ only in case or in the form of their letters.")


def _read(root: int, path: str, left: int) -> bytes:
    try:
        opened = open_plain(root, tuple(path.split("/")), best_opener())
    except OutsideFolder as error:
        raise SkillInvalid(f"{path!r} cannot be read. {error}") from error
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise SkillInvalid(f"{path!r} is not a file.")
        content = file.read(left + 1)
    if len(content) > left:
        raise SkillInvalid(f"The folder has more than {MOST_BYTES >> 20} MiB.")
    return content


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a new folder, durably, whole or not at all. Files that begin with `#!` can be executed.

    Blocks; raises OSError, also if the folder exists and is not empty.
    """
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        for path, content in files.items():
            place = new / path
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = 0o700 if content.startswith(b"#!") else 0o600
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        os.rename(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    sync_folder(folder.parent)


def describe_changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """Return what changed between two versions of a skill: changed lines of texts, and the sizes of other files."""
    lines: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        old_text, new_text = text_of(old or b""), text_of(new or b"")
        if old_text is None or new_text is None:
            lines.append(f"{path}: {_size(old)} before, {_size(new)} now")
            continue
        names = ("/dev/null" if old is None else path), ("/dev/null" if new is None else path)
        lines += unified_diff(old_text.splitlines(), new_text.splitlines(), *names, lineterm="")
    return "\n".join(lines)


def text_of(content: bytes) -> str | None:
    """Return the content of a file as text; None if it is binary or too large."""
    if len(content) > TEXT_BYTES or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _size(content: bytes | None) -> str:
    return "absent" if content is None else f"{len(content):,} bytes with the digest {sha256(content).hexdigest()[:12]}"
