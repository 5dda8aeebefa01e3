"""Exports of sessions as a bundle that verifies itself: journals, attachments, hashes, a signature, and the program that
checks them. All functions block."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from gateway import VERSION
from gateway.backup import verify_bundle
from gateway.backup.manifest import BackupRefused
from gateway.backup.verify_bundle import MANIFEST, SIGNATURE, SIGNER, SUMS, VERIFIER, digest, end_size, header
from gateway.support.home import Home
from gateway.support.storage import attachments_of
from sessions.attachments.attachment_refs import digests_in
from sessions.files.fsync import replace_file
from sessions.store.log_writer import stamp
from sessions.store.protocols import START
from sessions.store.reading import StoredLog, verify_lines


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a bundle."""

    path: str
    bytes: int
    sha256: str


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a bundle. `missing` are the hashes of attachments that the home did not have any more."""

    format: int
    version: str
    exported: str
    sessions: tuple[str, ...]
    files: tuple[BundledFile, ...]
    missing: tuple[str, ...] = ()


class BundleResult(msgspec.Struct, frozen=True, kw_only=True):
    """A written bundle: its place, size and content, and the public key of its signature, empty if it has none."""

    place: str
    bytes: int
    sessions: int
    attachments: int
    missing: tuple[str, ...]
    signer: str


def write_bundle(home: Home, logs: Sequence[StoredLog], place: Path, now: datetime, key: Path | None) -> BundleResult:
    """Write a bundle of sessions, signed with an SSH key.

    Args:
        home: The home.
        logs: The sessions.
        place: The file to write; one that exists is replaced.
        now: The current time.
        key: The private key; by default that of the home, which is made if ssh-keygen is installed.

    Raises:
        JournalDamaged, StorageFailed: A session cannot be read.
        BackupRefused: It cannot be signed.
        OSError: The file cannot be written.
    """
    files, named = dict[str, bytes](), set[str]()
    for log in logs:
        lines = list[bytes]()
        with log.read() as found:
            verify_lines(found, START, lines.append)
            named |= digests_in(found)
        files[f"sessions/{log.session}.jsonl"] = b"".join(lines)
    missing = _add_attachments(home, sorted(named), files)
    files[VERIFIER] = Path(verify_bundle.__file__).read_bytes()
    signer = key or _own_key(home)
    if signer is not None:
        files[SIGNER] = _public_key(signer)
    manifest = BundleManifest(
        format=1,
        version=VERSION,
        exported=stamp(now),
        sessions=tuple(log.session for log in logs),
        files=tuple(BundledFile(path=name, bytes=len(each), sha256=digest(each)) for name, each in sorted(files.items())),
        missing=missing,
    )
    files[MANIFEST] = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    if signer is not None:
        files[SIGNATURE] = _signature(signer, files[MANIFEST])
    files[SUMS] = "".join(f"{digest(files[name])}  {name}\n" for name in sorted(files)).encode()
    content = archive_of(files)
    replace_file(place, content)
    return BundleResult(
        place=str(place),
        bytes=len(content),
        sessions=len(logs),
        attachments=sum(name.startswith("attachments/") for name in files),
        missing=missing,
        signer=files.get(SIGNER, b"").decode().strip(),
    )


def archive_of(files: dict[str, bytes]) -> bytes:
    """Return the archive of these files, the program that verifies it first."""
    pieces = list[bytes]()
    for name in sorted(files, key=lambda name: (name != VERIFIER, name)):
        content = files[name]
        pieces += [header(name, len(content)), content, bytes(-len(content) % verify_bundle.BLOCK)]
    joined = b"".join(pieces)
    return joined + bytes(end_size(len(joined)))


def _add_attachments(home: Home, named: Iterable[str], files: dict[str, bytes]) -> tuple[str, ...]:
    """Add the attachments with these hashes, and return those that are missing or altered."""
    missing, blobs = [], attachments_of(home)
    for sha256 in named:
        try:
            content = asyncio.run(blobs.read(sha256))
        except FileNotFoundError:
            content = b""
        if digest(content) == sha256:
            files[f"attachments/{sha256}"] = content
        else:
            missing.append(sha256)
    return tuple(missing)


# --- signatures -------------------------------------------------------------------------------------------------------


def _own_key(home: Home) -> Path | None:
    """Return the key of the home for signatures, which is made if it is missing; None without ssh-keygen."""
    if not home.export_key.exists():
        if shutil.which("ssh-keygen") is None:
            return None
        _ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", "exuvia", "-f", str(home.export_key))
    return home.export_key


def _public_key(key: Path) -> bytes:
    return _ssh_keygen("-y", "-P", "", "-f", str(key))


def _signature(key: Path, content: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "manifest")
        file.write_bytes(content)
        _ssh_keygen("-q", "-Y", "sign", "-n", verify_bundle.NAMESPACE, "-f", str(key), str(file))
        return file.with_name("manifest.sig").read_bytes()


def _ssh_keygen(*arguments: str) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and paths only
            ["ssh-keygen", *arguments],  # noqa: S607 - as it is installed
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError as error:
        raise BackupRefused("ssh-keygen is not installed, which signs the bundle.") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise BackupRefused(f"ssh-keygen cannot sign: {said[0] if said else done.returncode}.")
    return done.stdout


def opened_bundle(place: Path) -> dict[str, bytes]:
    """Return the files of a bundle that verifies. Raises BackupRefused, OSError."""
    try:
        return verify_bundle.verify(place.read_bytes())[0]
    except (verify_bundle.Fault, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackupRefused(f"{place} is damaged: {error}. Nothing was imported.") from error
