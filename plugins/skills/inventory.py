"""The skills of a gateway: which there are, which of them are admitted, and loading them.

Nothing of a skill reaches a model before a person has admitted exactly these files. Each turn looks for changes by the
stamps of the files; the content of a skill is compared with its digest again whenever it is loaded. The catalogue shows the
description that was admitted, not the one on disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from plugins.skills.admissions import SEARCHED, Admission, Admissions, Admitted, Stamp
from plugins.skills.catalogue import Catalogue, FoundSkill, State, catalogue_of, listed, problems_of
from plugins.skills.skill_file import NAME, SkillInvalid, parse_skill
from plugins.skills.skill_folder import SkillFiles, check_names, describe_changes, read_folder, text_of
from plugins.skills.skill_names import name_fault, skeleton
from plugins.skills.skill_settings import SkillsKeys
from plugins.support.text.invisible import visible

if TYPE_CHECKING:
    from plugins.api.plugin_services import EmbedTexts
    from plugins.skills.skill_search import SkillIndex

log = structlog.get_logger("exuvia.skills")

MOST_SKILLS = 5000
"""Maximum skills in one folder."""

USED = "used.json"
"""The file with the time when each skill was last used; it decides the order of the catalogue only."""


class LoadedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a skill, and the admission of exactly these."""

    skill: FoundSkill
    admission: Admission
    files: SkillFiles


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as a person is shown it before it is admitted.

    Attributes:
        skill: The skill.
        name: The name it will have.
        description: Its description.
        files: Its files.
        changes: What changed since it was admitted; "" if it is new.
    """

    skill: FoundSkill
    name: str
    description: str
    files: SkillFiles
    changes: str

    def text(self, most: int) -> str:
        """Return what a person should see: the description, the list of files, and their texts or changes.

        `SKILL.md`, or what changed, is always shown whole; of the other texts as many as fit `most` characters. What is
        invisible is written as `\\u{…}`.
        """
        return visible(self._text(most))

    def _text(self, most: int) -> str:
        files = self.files.content
        lines = [
            f"{self.name}: {self.description}",
            f"In {self.skill.place}, {len(files):,} file{'s' * (len(files) > 1)}, {self.files.bytes:,} bytes:",
        ]
        lines += [f"  {path} ({len(content):,} bytes)" for path, content in files.items()]
        if self.skill.state == "changed":
            return "\n".join([*lines, "", "Changes:", self.changes])
        parts, hidden = ["\n".join([*lines, "", f"--- {NAME}", files[NAME].decode()])], []
        most -= len(parts[0])
        for path, content in files.items():
            text = text_of(content)
            if path == NAME or not text:
                continue
            if len(text) > most:
                hidden.append(path)
                continue
            parts.append(f"--- {path}\n{text}")
            most -= len(parts[-1])
        return "\n".join([*parts, *([f"Not shown, since it is long: {', '.join(hidden)}"] if hidden else [])])


class Skills:
    """The skills in the configured folders.

    Args:
        folder: The folder of the admissions in the home.
        workspace: The workspace.
        keys: Returns the configuration in force.
        now: Returns the time in UTC.
    """

    def __init__(
        self, folder: Path, workspace: Path, *, keys: Callable[[], SkillsKeys], now: Callable[[], datetime]
    ) -> None:
        self._home = folder
        self._admissions = Admissions(folder)
        self._workspace = workspace
        self._keys = keys
        self._now = now
        self._scanning = asyncio.Lock()
        self._examined: dict[str, _Examined] = {}
        self._used: dict[str, str] | None = None
        self._index: tuple[int, SkillIndex] | None = None
        self._left_out: tuple[tuple[str, ...], int] = ((), 0)
        self.found: tuple[FoundSkill, ...] = ()
        """All skills by the order of the folders and their names, those that cannot be used too."""
        self.version = 0
        """Changes whenever `found` does."""

    async def refresh(self) -> None:
        """Look for new, changed and removed skills."""
        async with self._scanning:
            before = self.version
            await asyncio.to_thread(self.scan)
            for sentence in problems_of(self.found, (), 0) if self.version != before else ():
                log.warning("skills", reason=sentence)

    def scan(self) -> None:
        """Look for changes, like `refresh`. Blocks."""
        try:
            found = tuple(without_imitations(list(self._find())))
        except OSError as error:
            log.error("skills_not_read", reason=str(error))
            return
        if found != self.found:
            self.found = found
            self.version += 1

    def catalogue(self, window: int | None) -> Catalogue:
        """Return the catalogue for a model with this window (tokens; None if unknown)."""
        keys = self._keys()
        budget = keys.budget(window)
        catalogue = catalogue_of(self.found, budget, pinned=keys.pinned, used=self._last_used() if self.found else {})
        if catalogue.left_out != self._left_out[0]:
            if catalogue.left_out:
                log.warning("skills_left_out", skills=listed(catalogue.left_out), budget_tokens=budget)
            self._left_out = catalogue.left_out, budget
        return catalogue

    @property
    def has_any(self) -> bool:
        """True if there is a skill that is admitted or can be."""
        return any(skill.state != "refused" for skill in self.found)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of admitted skills that the last catalogue had no room for."""
        return self._left_out[0]

    def problems(self) -> list[str]:
        """Return what a person should know, as sentences."""
        return problems_of(self.found, *self._left_out)

    async def search(self, query: str, results: int, embed: EmbedTexts | None) -> list[FoundSkill]:
        """Return the skills that match a query best, best first."""
        from plugins.skills.skill_search import SkillIndex  # noqa: PLC0415 - stemmers, which only a search needs

        if self._index is None or self._index[0] != self.version:
            usable = [skill for skill in self.found if skill.state != "refused"]
            self._index = self.version, await asyncio.to_thread(SkillIndex, usable)
        return await self._index[1].search(query, results, embed)

    def get(self, name: str) -> FoundSkill:
        """Return a skill by its name. Raises SkillInvalid if there is none."""
        for skill in sorted(self.found, key=lambda skill: skill.state != "admitted"):
            if skill.name == name:
                return skill
        raise SkillInvalid(f"There is no skill {name[:100]!r}.")

    def load(self, name: str) -> LoadedSkill:
        """Return an admitted skill after comparing its files with its digest. Blocks.

        Raises:
            SkillInvalid: There is no such skill, or it is not admitted as it is now.
        """
        skill = self.get(name)
        files = self._read(skill)
        admission = self._admissions.current().by_name.get(name, {}).get(files.digest)
        if admission is None:
            what = "has changed since it was admitted" if skill.admission else "has not been admitted"
            raise SkillInvalid(f"The skill {name!r} {what}; the owner can admit it (`/skills show {name}`).")
        return LoadedSkill(skill=skill, admission=admission, files=files)

    def preview(self, name: str) -> Preview:
        """Return a skill as it is on disk now. Blocks. Raises SkillInvalid."""
        skill = self.get(name)
        if skill.state == "refused":
            raise SkillInvalid(skill.reason)
        return self.shown(Path(skill.folder), self._read(skill))

    def shown(self, folder: Path, files: SkillFiles) -> Preview:
        """Return a skill that has these files, in a folder that need not exist yet. Blocks. Raises SkillInvalid."""
        text = parse_skill(files.content[NAME])
        name = text.usable_name(folder.name)
        self._check_name(name, folder)
        admitted = files.digest in self._admissions.current().by_name.get(name, {})
        before = {} if admitted else self._admissions.copy_of(name) or _present(folder)
        changes = describe_changes(before, files.content) if before else ""
        state: State = "admitted" if admitted else "changed" if changes else "new"
        skill = FoundSkill(name=name, folder=str(folder), place=self._place(str(folder)), state=state)
        return Preview(skill=skill, name=name, description=text.description, files=files, changes=changes)

    def folder_for(self, place: str, name: str) -> Path:
        """Return where a skill that was found in a place belongs: there, if it is in a folder of skills already.

        Raises SkillInvalid if none is configured.
        """
        folders = self._keys().folders(self._workspace)
        if not folders:
            raise SkillInvalid("No folder for skills is configured (skills.paths).")
        return Path(place) if Path(place).parent in folders else folders[0] / name

    def _check_name(self, name: str, folder: Path) -> None:
        for other in self.found:
            if other.admission is not None and other.folder != str(folder) and skeleton(other.name) == skeleton(name):
                raise SkillInvalid(f"{alike(name, other)} Remove that one first.")

    def admit(self, preview: Preview, by: str, origin: str = "") -> Admission:
        """Admit exactly the files that were shown. Blocks; durable when it returns.

        Args:
            preview: What the person was shown.
            by: The person.
            origin: Where the skill came from, if not from its folder.

        Raises:
            SkillInvalid: Another skill has such a name, or the files have changed since they were shown.
        """
        files = self._read(preview.skill)
        if files.digest != preview.files.digest:
            raise SkillInvalid(f"The files of {preview.name!r} have changed since they were shown; look at them again.")
        self._check_name(preview.name, Path(preview.skill.folder))
        text = parse_skill(files.content[NAME])
        admission = Admission(
            at=self._now().isoformat(timespec="seconds"),
            by=by,
            name=preview.name,
            digest=files.digest,
            description=text.description,
            headings=within(text.headings),
            folder=preview.skill.folder,
            origin=origin or preview.skill.folder,
            stamp=_stamp(preview.skill.folder),
        )
        self._admissions.admit(admission, files)
        return admission

    def revoke(self, name: str, by: str) -> None:
        """Admit no version of a skill any more. Blocks. Raises SkillInvalid if none is admitted."""
        if not self._admissions.current().by_name.get(name):
            raise SkillInvalid(f"No version of the skill {name[:100]!r} is admitted.")
        self._admissions.revoke(name, self._now().isoformat(timespec="seconds"), by)

    def record_use(self, name: str) -> None:
        """Remember that a skill was used now. Blocks; a failure is ignored, since only an order depends on it."""
        used = self._last_used()
        used[name] = self._now().isoformat(timespec="seconds")
        new = self._home / f".{USED}.{os.getpid()}"
        with suppress(OSError):
            new.write_bytes(msgspec.json.encode(used))
            new.replace(self._home / USED)

    # --- scanning -----------------------------------------------------------------------------------------------------

    def _find(self) -> Iterator[FoundSkill]:
        admitted = self._admissions.current()
        for path in self._keys().folders(self._workspace):
            for folder, stamp in _folders(path):
                yield self._found(folder, stamp, admitted)

    def _found(self, folder: str, stamp: Stamp, admitted: Admitted) -> FoundSkill:
        place = self._place(folder)
        before = admitted.by_folder.get(folder)
        examined = self._examined.get(folder)
        if examined is None or examined.stamp != stamp:
            unchanged = before is not None and before.stamp == stamp
            known = _Examined(stamp=stamp, digest=before.digest, name=before.name) if before and unchanged else None
            examined = known or _examine(folder, stamp)
            self._examined[folder] = examined
        if (admission := admitted.by_digest.get(examined.digest)) is not None:
            return FoundSkill(name=admission.name, folder=folder, place=place, state="admitted", admission=admission)
        name = before.name if before else examined.name
        if examined.reason:
            return FoundSkill(name=name, folder=folder, place=place, state="refused", reason=examined.reason)
        changed = before is not None or bool(admitted.by_name.get(name))
        return FoundSkill(name=name, folder=folder, place=place, state="changed" if changed else "new")

    def _place(self, folder: str) -> str:
        return _printable(folder.removeprefix(f"{self._workspace}/"))

    def _read(self, skill: FoundSkill) -> SkillFiles:
        """Return the files of a skill, and remember their digest. Raises SkillInvalid."""
        stamp = _stamp(skill.folder)
        try:
            files = read_folder(Path(skill.folder))
        except OSError as error:
            raise SkillInvalid(f"The skill in {skill.place} cannot be read: {error.strerror}.") from error
        if stamp is not None:
            self._examined[skill.folder] = _Examined(stamp=stamp, digest=files.digest, name=skill.name)
        return files

    def _last_used(self) -> dict[str, str]:
        if self._used is None:
            try:
                self._used = msgspec.json.decode((self._home / USED).read_bytes(), type=dict[str, str])
            except (OSError, msgspec.MsgspecError):
                self._used = {}
        return self._used


class _Examined(msgspec.Struct, frozen=True, kw_only=True):
    """The digest of a folder, or why it has none, as long as its `SKILL.md` has this stamp."""

    stamp: Stamp
    digest: str = ""
    name: str = ""
    reason: str = ""


def _examine(folder: str, stamp: Stamp) -> _Examined:
    """Digest a folder. Its `SKILL.md` is parsed only if the folder's name is none for a skill."""
    name = os.path.basename(folder)
    try:
        check_names([name])
        files = read_folder(Path(folder))
        named = parse_skill(files.content[NAME]).usable_name(name) if name_fault(name) else name
        return _Examined(stamp=stamp, digest=files.digest, name=named)
    except SkillInvalid as error:
        return _Examined(stamp=stamp, name=_printable(name), reason=str(error))
    except OSError as error:
        return _Examined(stamp=stamp, name=_printable(name), reason=f"It cannot be read: {error.strerror}.")


def _present(folder: Path) -> Mapping[str, bytes]:
    """Return the files that a new skill would replace."""
    try:
        return read_folder(folder).content
    except (OSError, SkillInvalid):
        return {}


def _printable(name: str) -> str:
    if name.isprintable():
        return name
    return "".join(character if character.isprintable() else "�" for character in name)


def _folders(path: Path) -> Iterator[tuple[str, Stamp]]:
    """Yield the folders with a skill in `path`, sorted by name, with the stamp of their `SKILL.md`."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.path for entry in entries if not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in names[:MOST_SKILLS]:
        if (stamp := _stamp(folder)) is not None:
            yield folder, stamp


def _stamp(folder: str) -> Stamp | None:
    """Return the stamp of a `SKILL.md`, None if there is none."""
    try:
        found = os.lstat(f"{folder}/{NAME}")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def without_imitations(skills: Sequence[FoundSkill]) -> list[FoundSkill]:
    """Return the skills, each refused whose name is that of an earlier one, or looks like it. Admitted ones are earlier."""
    first: dict[str, FoundSkill] = {}
    for skill in sorted(skills, key=lambda skill: skill.state != "admitted"):
        if skill.state != "refused":
            first.setdefault(skeleton(skill.name), skill)
    return [
        skill if skill.state == "refused" or (other := first[skeleton(skill.name)]) is skill else _imitation(skill, other)
        for skill in skills
    ]


def _imitation(skill: FoundSkill, other: FoundSkill) -> FoundSkill:
    reason = alike(skill.name, other)
    return msgspec.structs.replace(skill, state="refused", reason=reason, admission=None)


def alike(name: str, other: FoundSkill) -> str:
    """Return a sentence that says that another skill has this name, or one that looks like it."""
    if name == other.name:
        return f"Another skill is named {name!r} too, in {other.place}."
    return f"The name {name!r} looks like that of the skill {other.name!r} in {other.place}."


def within(headings: Sequence[str]) -> tuple[str, ...]:
    """Return as many headings as are kept for the search."""
    kept, room = [], SEARCHED
    for heading in headings:
        room -= len(heading)
        if room < 0:
            break
        kept.append(heading)
    return tuple(kept)
