"""Adding skills from a folder or an archive: finding them, and writing them below a folder of skills."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from plugins.skills.archives import ARCHIVE_BYTES, unpack
from plugins.skills.skill_file import NAME, SkillInvalid, SkillText, parse_skill
from plugins.skills.skill_folder import SkillFiles, check_names, read_folder, write_folder

MOST_SKILLS = 500
"""Maximum skills in one source."""


class FoundInSource(msgspec.Struct, frozen=True, kw_only=True):
    """A skill of a source.

    Attributes:
        place: Where it was found: a folder, or a path in an archive.
        folder: The name of its folder; "" at the top of an archive.
        files: Its files, None if they are refused.
        text: The content of its `SKILL.md`, None if it is refused.
        fault: Why it is refused, as a sentence.
    """

    place: str
    folder: str
    files: SkillFiles | None = None
    text: SkillText | None = None
    fault: str = ""

    @property
    def name(self) -> str:
        """The name that the skill will have. Raises SkillInvalid if it is refused."""
        if self.text is None:
            raise SkillInvalid(self.fault)
        return self.text.usable_name(self.folder)


def skills_in(source: Path) -> list[FoundInSource]:
    """Return the skills in a folder, which is a skill or contains some, or in an archive. Blocks.

    Raises:
        SkillInvalid: There is no skill, or the archive is refused.
        OSError: The source cannot be read.
    """
    if not source.is_dir():
        with open(source, "rb") as file:
            return skills_in_archive(file.read(ARCHIVE_BYTES + 1))
    if (source / NAME).is_file():
        folders = [source]
    else:
        folders = sorted(folder for folder in source.iterdir() if (folder / NAME).is_file())
    found = [_of_folder(folder) for folder in folders[:MOST_SKILLS]]
    if not found:
        raise SkillInvalid(f"There is no skill in {source}: neither it nor a folder in it has a {NAME}.")
    return found


def _of_folder(folder: Path) -> FoundInSource:
    place = os.path.abspath(folder)
    try:
        files = read_folder(Path(place))
        return _read(place, os.path.basename(place), files)
    except (SkillInvalid, OSError) as error:
        return FoundInSource(place=place, folder=os.path.basename(place), fault=str(error))


def skills_in_archive(content: bytes) -> list[FoundInSource]:
    """Return the skills in an archive, at its top or in folders at any depth; raises as `skills_in`. Blocks."""
    if len(content) > ARCHIVE_BYTES:
        raise SkillInvalid(f"The archive has more than {ARCHIVE_BYTES >> 20} MiB.")
    files = unpack(content)
    roots: list[str] = []
    for path in sorted(files, key=lambda path: (path.count("/"), path)):
        above, _, name = path.rpartition("/")
        if name == NAME and not any(_below(path, root) for root in roots):
            roots.append(above)
    if not roots:
        raise SkillInvalid(f"There is no {NAME} in the archive.")
    return [_of_archive(root, dict(_files_below(files, root))) for root in roots[:MOST_SKILLS]]


def _below(path: str, root: str) -> bool:
    return not root or path.startswith(f"{root}/")


def _files_below(files: Mapping[str, bytes], root: str) -> Iterator[tuple[str, bytes]]:
    start = len(root) + 1 if root else 0
    yield from ((path[start:], files[path]) for path in sorted(files) if _below(path, root))


def _of_archive(root: str, content: dict[str, bytes]) -> FoundInSource:
    folder = PurePosixPath(root).name
    try:
        check_names(content)
        return _read(root or ".", folder, SkillFiles(content=content))
    except SkillInvalid as error:
        return FoundInSource(place=root or ".", folder=folder, fault=str(error))


def _read(place: str, folder: str, files: SkillFiles) -> FoundInSource:
    try:
        text = parse_skill(files.content[NAME])
        text.usable_name(folder)
    except SkillInvalid as error:
        return FoundInSource(place=place, folder=folder, files=files, fault=str(error))
    return FoundInSource(place=place, folder=folder, files=files, text=text)


def write_skill(folder: Path, files: SkillFiles) -> None:
    """Write a skill into its folder, replacing the one that is there as a whole. Blocks; raises OSError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.{word}") for word in ("new", "old"))
    write_folder(new, files.content)
    try:
        if os.path.lexists(folder):
            os.rename(folder, old)
        os.rename(new, folder)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
