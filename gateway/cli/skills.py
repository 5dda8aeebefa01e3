"""`exuvia skills list|add|check`. Each function prints and returns an exit code: 0 success, 1 a skill has a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import click
import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.support.clock import SystemClock
from gateway.support.printable import one_line, printable
from plugins.http.client import Limits, Timeouts, Transport
from plugins.skills.archives import ARCHIVE_BYTES
from plugins.skills.installation import FoundInSource, skills_in, skills_in_archive, write_skill
from plugins.skills.inventory import Preview, Skills
from plugins.skills.skill_file import SkillInvalid, findings
from plugins.support.errors import ProviderError
from plugins.support.http_errors import StatusRefused
from plugins.support.workspace import OWNER

DOWNLOAD_SECONDS = 120.0
"""Seconds that a download may take."""

SHOWN = 200_000
"""Characters of a skill that are shown before it is admitted; `SKILL.md` is always shown whole."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Hosts from which unencrypted downloads are allowed: this machine."""


class ListedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the list. `admitted`, `by`, `origin` and `digest` are of the present files, "" if they are not admitted."""

    name: str
    state: str
    folder: str
    description: str = ""
    reason: str = ""
    admitted: str = ""
    by: str = ""
    origin: str = ""
    digest: str = ""


class CheckedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: `usable` skills can be admitted, even if they do not follow the convention in everything."""

    place: str
    name: str
    usable: bool
    faults: list[str]


class AddedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adding a skill: `admitted`, or the reason why it was not."""

    name: str
    folder: str = ""
    digest: str = ""
    admitted: bool = False
    reason: str = ""


def list_skills(call: Invocation) -> int:
    """Print all skills."""
    skills = _inventory(call)
    rows = []
    for found in skills.found:
        admission = found.admission
        row = ListedSkill(name=found.name, state=found.state, folder=found.folder, reason=found.reason)
        if admission is not None:
            row = msgspec.structs.replace(
                row,
                description=admission.description,
                admitted=admission.at,
                by=admission.by,
                origin=admission.origin,
                digest=admission.digest,
            )
        rows.append(row)
    if call.as_json:
        print_json(rows, call.out)
    else:
        for row in rows:
            about = one_line(row.description or row.reason, 400)
            call.out.write(f"{one_line(row.name, 80):32} {row.state:9} {about}\n".rstrip(" "))
        call.out.write("" if rows else "There are no skills.\n")
    return SUCCESS if all(row.state == "admitted" for row in rows) else PROBLEM


def check_skills(source: Path, out: TextIO, *, as_json: bool) -> int:
    """Print what the convention does not allow in the skills of a source."""
    checked = [_checked(each) for each in _read(lambda: skills_in(source))]
    if as_json:
        print_json(checked, out)
    for each in [] if as_json else checked:
        out.write(f"{one_line(each.place, 400)}: {'follows the convention.' if not each.faults else ''}".rstrip() + "\n")
        out.writelines(f"  {one_line(fault, 600)}\n" for fault in each.faults)
    return PROBLEM if any(each.faults for each in checked) else SUCCESS


def _checked(found: FoundInSource) -> CheckedSkill:
    if found.text is None:
        return CheckedSkill(place=found.place, name=found.folder, usable=False, faults=[found.fault])
    return CheckedSkill(place=found.place, name=found.name, usable=True, faults=findings(found.text, found.folder))


def add_skills(call: Invocation, source: str, *, yes: bool) -> int:
    """Show the skills of a source, and install and admit those that the person agrees to."""
    if call.as_json and not yes:
        raise click.ClickException("With --json nobody can be asked; add --yes to admit what is found.")
    is_address = "://" in source
    found = _read(lambda: skills_in_archive(asyncio.run(_download(source))) if is_address else skills_in(Path(source)))
    origin = source if is_address or not Path(source).is_dir() else ""
    skills = _inventory(call)
    added = [_add(call, skills, each, origin, yes=yes) for each in found]
    if call.as_json:
        print_json(added, call.out)
    return SUCCESS if all(each.admitted for each in added) else PROBLEM


def _add(call: Invocation, skills: Skills, found: FoundInSource, origin: str, *, yes: bool) -> AddedSkill:
    try:
        added = _added(call, skills, found, origin, yes=yes)
    except SkillInvalid as error:
        added = AddedSkill(name=found.folder or found.place, reason=str(error))
    if not call.as_json:
        outcome = "is admitted." if added.admitted else f"was not admitted. {added.reason}"
        call.out.write(f"{one_line(added.name, 80)} {one_line(outcome, 600)}\n")
    return added


def _added(call: Invocation, skills: Skills, found: FoundInSource, origin: str, *, yes: bool) -> AddedSkill:
    name, files = found.name, found.files
    assert files is not None
    folder = skills.folder_for(found.place, name)
    shown = skills.shown(folder, files)
    if shown.skill.state != "admitted":
        if not call.as_json:
            call.out.write(f"{printable(shown.text(SHOWN))}\n\n")
            call.out.flush()
        if not yes and not _agrees(call, shown):
            return AddedSkill(name=name, reason="You did not agree.")
    if str(folder) != found.place:
        write_skill(folder, files)
    skills.scan()
    admission = skills.admit(shown, OWNER, origin or found.place)
    skills.scan()
    return AddedSkill(name=name, folder=str(folder), digest=admission.digest, admitted=True)


def _agrees(call: Invocation, shown: Preview) -> bool:
    what = "Admit these changes of" if shown.skill.state == "changed" else "Admit"
    try:
        return click.confirm(f"{what} {shown.name} ({shown.files.digest[:12]})?", default=False)
    except click.Abort:
        call.out.write("\n")
        return False


def _inventory(call: Invocation) -> Skills:
    config = call.settings().current
    workspace = call.home.workspace(config.agent.workspace)
    skills = Skills(call.agent_home.admitted_skills, workspace, keys=lambda: config.skills, now=SystemClock().now)
    skills.scan()
    return skills


def _read(look: Callable[[], list[FoundInSource]]) -> list[FoundInSource]:
    try:
        return look()
    except SkillInvalid as error:
        raise click.ClickException(str(error)) from error


async def _download(address: str) -> bytes:
    """Return an archive. Raises ClickException if it cannot be downloaded."""
    parts = urlsplit(address)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in LOOPBACK):
        raise click.ClickException("Skills are downloaded from https addresses only.")
    timeouts = Timeouts(first=30.0, between=30.0, whole=DOWNLOAD_SECONDS, attempts=2)
    async with Transport(timeouts=timeouts, limits=Limits(body=ARCHIVE_BYTES)) as transport:
        try:
            return await transport.get(address, headers={})
        except StatusRefused as error:
            if error.status in (301, 302, 303, 307, 308):
                raise click.ClickException(
                    "The server redirects to another address, which is not followed; give the final one (for GitHub,"
                    " https://codeload.github.com/OWNER/REPOSITORY/zip/refs/heads/BRANCH)."
                ) from error
            raise click.ClickException(f"The server answered with status {error.status}.") from error
        except ProviderError as error:
            raise click.ClickException(str(error)) from error
