"""`exuvia backup` and `exuvia restore`. Each command prints and returns an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click
import msgspec

from gateway.backup.backup_folder import BackupResult, back_up
from gateway.backup.backup_stream import archive_in, decrypting, encrypting, stream_backup
from gateway.backup.known_backups import note_backup
from gateway.backup.ledger import delete_again, outstanding
from gateway.backup.manifest import BackupRefused, Manifest
from gateway.backup.restoring import RestoreResult, new_home, newest_ledger, unpack_archive, unpack_folder, verify_backup
from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.conversations.deletion.deletion_log import ErasureOrdered
from gateway.support import logs
from gateway.support.home import Home
from gateway.support.printable import one_line
from gateway.support.session_status import count_of


def back_up_home(call: Invocation, target: str, *, recipients: Sequence[str], with_secrets: bool) -> int:
    """Back up a home to a folder, to an encrypted archive in it, or to standard output. Raises BackupRefused, OSError,
    SessionsError."""
    if target == "-":
        with _encrypted(recipients, sys.stdout.buffer) as out:
            done = stream_backup(call.home, out, _now, with_secrets=with_secrets)
        return _report(done, "standard output", sys.stderr, as_json=call.as_json)
    folder = Path(os.path.abspath(Path(target).expanduser()))
    if recipients:
        name = f"exuvia-{_now().strftime('%Y%m%dT%H%M%SZ')}.tar.age"
        with archive_in(folder, name) as file, _encrypted(recipients, file) as out:
            done = stream_backup(call.home, out, _now, with_secrets=with_secrets)
        place = folder / name
    else:
        done, place = back_up(call.home, folder, _now, with_secrets=with_secrets), folder
    note_backup(call.home, place, _now())
    return _report(done, str(place), call.out, as_json=call.as_json)


def verify(folder: Path, *, as_json: bool) -> int:
    """Verify the backup in a folder. Raises BackupRefused, OSError."""
    manifest, faults = verify_backup(folder)
    if as_json:
        print_json(
            {"began": manifest.began, "logs": len(manifest.logs), "files": len(manifest.files), "faults": faults}, sys.stdout
        )
    else:
        sys.stdout.writelines(f"DAMAGED {one_line(fault, 500)}\n" for fault in faults)
        sys.stdout.write(
            f"The backup of {manifest.began} has {_contents(len(manifest.logs), len(manifest.files))};"
            f" {len(faults)} are damaged.\n"
        )
    return PROBLEM if faults else SUCCESS


def restore_home(home: Home, source: str, *, identity: Path | None, ledgers: Sequence[Path], as_json: bool) -> int:
    """Restore a home from a folder, an archive, or an archive on standard input. Raises BackupRefused, OSError."""
    with new_home(home) as root:
        beside = newest_ledger(Path(source)) if source != "-" else None
        manifest = _unpack(source, root, identity)
        found = outstanding(Home(root), [*ledgers, *([beside] if beside else [])], manifest.began)
        erased = len(found.deletions) + _erase_again(Home(root), found.erasures)
        delete_again(Home(root), found)
    result = RestoreResult(
        home=str(home.root),
        began=manifest.began,
        logs=len(manifest.logs),
        files=len(manifest.files),
        erased=erased,
        remarks=manifest.remarks,
    )
    if as_json:
        print_json(result, sys.stdout)
        return SUCCESS
    sys.stdout.writelines(f"{one_line(remark, 500)}\n" for remark in result.remarks)
    again = f" Erasures and deletions applied again: {erased}." if erased else ""
    missing = "" if manifest.secrets else " Tokens, keys and logins were not in it; the next start makes a new token."
    sys.stdout.write(
        f"{home.root} is as it was at {manifest.began}: {_contents(result.logs, result.files)}, all verified."
        f"{again}{missing}\n"
    )
    return SUCCESS


def _erase_again(home: Home, orders: Sequence[ErasureOrdered]) -> int:
    """Carry out erasures again in a home that nobody uses; return how many of them found something."""
    if not orders:
        return 0
    from gateway.wiring.offline_erasure import open_erasures  # noqa: PLC0415 - only where something was erased

    logs.configure("error", "auto")  # the catalog of a restored home is always rebuilt

    async def again() -> int:
        async with open_erasures(home, home.workspaces(_named_workspaces(home))) as erasures:
            return sum([await erasures.carry_out_again(order) for order in orders])

    return asyncio.run(again())


def _named_workspaces(home: Home) -> Iterator[str]:
    """Yield the workspaces that the configuration of a home names, if it can be read."""
    tree: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        tree = tomllib.loads(home.config.read_text())
    agents = tree.get("agents")
    tables = [tree.get("agent"), *(agents.values() if isinstance(agents, dict) else ())]
    named = [table.get("workspace") for table in tables if isinstance(table, dict)]
    yield from ("workspace", *(each for each in named if isinstance(each, str)))


def _unpack(source: str, root: Path, identity: Path | None) -> Manifest:
    if source == "-":
        with _decrypted(identity, sys.stdin.buffer) as archive:
            return unpack_archive(archive, root)
    if Path(source).is_dir():
        return unpack_folder(Path(source), root)
    if source.endswith(".age") and identity is None:
        raise BackupRefused(f"{source} is encrypted; name the key file of age with --identity.")
    with open(source, "rb") as file, _decrypted(identity, file) as archive:
        return unpack_archive(archive, root)


def _report(done: BackupResult, place: str, out: TextIO, *, as_json: bool) -> int:
    if as_json:
        print_json({"place": place, **msgspec.to_builtins(done)}, out)
        return PROBLEM if done.remarks else SUCCESS
    out.writelines(f"{one_line(remark, 500)}\n" for remark in done.remarks)
    out.write(
        f"{place} has {_contents(done.logs, done.files)}, {done.bytes:,} bytes; {done.copied:,} bytes were new."
        " What was copied was verified.\n"
    )
    return PROBLEM if done.remarks else SUCCESS


@contextmanager
def _encrypted(recipients: Sequence[str], out: BinaryIO) -> Iterator[BinaryIO]:
    if out.isatty():
        raise click.ClickException("The backup is a tar archive; redirect it to a file or a program.")
    with encrypting(recipients, out) if recipients else nullcontext(out) as stream:
        yield stream


@contextmanager
def _decrypted(identity: Path | None, content: BinaryIO) -> Iterator[BinaryIO]:
    with nullcontext(content) if identity is None else decrypting(identity, content) as stream:
        yield stream


def _now() -> datetime:
    return datetime.now(UTC)


def _contents(logs: int, files: int) -> str:
    return f"{count_of(logs, 'log')} and {count_of(files, 'file')}"
