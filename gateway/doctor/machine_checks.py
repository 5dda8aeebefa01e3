"""Checks of the machine: limits, disk, file system, SQLite and the service's unit."""

from __future__ import annotations

import importlib
import os
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

from gateway.doctor.findings import DoctorContext, Finding
from gateway.support import address_space
from gateway.support.descriptors import reachable
from gateway.support.errors import sentence_of
from plugins.support.file_watcher import library

FREE_BYTES = 512 * 1024 * 1024
FREE_SHARE = 0.02
FREE_FILES = 2000
"""Thresholds for a nearly full disk: bytes, share of the disk, files. Months of journals are a few hundred MB."""

DESCRIPTORS = 1024
"""With fewer descriptors, a gateway accepts fewer than about 400 connections (`gateway.support.descriptors`)."""

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.s3fs", "afs", "ceph", "glusterfs", "davfs")
)
PASSING = frozenset(("tmpfs", "ramfs", "devtmpfs"))
UNSYNCED = frozenset(("nobarrier", "barrier=0", "volatile", "fsync=volatile", "eatmydata"))


def sqlite_extensions(_: DoctorContext) -> Iterator[Finding]:
    """Report an SQLite that cannot load the extension for vectors."""
    from sessions.catalog import sqlite  # noqa: PLC0415 - to see which copy the gateway takes here

    connection = sqlite.in_memory()
    if not hasattr(connection, "enable_load_extension"):
        yield Finding(
            level="note",
            what="This Python's SQLite loads no extensions, and the package pysqlite3 is not installed.",
            mend="Vector search is slower until then: `pip install pysqlite3`, or use another Python.",
        )
        connection.close()
        return
    try:
        connection.enable_load_extension(True)
        importlib.import_module("sqlite_vec").load(connection)
    except Exception as error:  # either copy of SQLite has its own error classes
        yield Finding(
            level="note",
            what=f"SQLite does not load the extension for vectors: {sentence_of(error)}.",
            mend="Reinstall the extension: `pip install --force-reinstall sqlite-vec`.",
        )
    finally:
        connection.close()


def disk(patient: DoctorContext) -> Iterator[Finding]:
    """Report a disk that is nearly full, in bytes or in files."""
    place = _existing(patient.home.root)
    room = os.statvfs(place)
    free, whole = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    mend = "Free space, or move the home to a larger disk; messages are refused when the disk is full."
    if whole and (free < FREE_BYTES or free < FREE_SHARE * whole):
        yield Finding(what=f"The disk under {place} is nearly full: {free // 2**20} MB left.", mend=mend)
    if room.f_files and room.f_favail < FREE_FILES:
        yield Finding(what=f"The disk under {place} has room for only {room.f_favail} more files.", mend=mend)


def file_system(patient: DoctorContext) -> Iterator[Finding]:
    """Report a home that is not on a local disk."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return  # available on Linux only
    yield from mount_findings(mounts, os.path.realpath(_existing(patient.home.root)))


def mount_findings(mountinfo: str, place: str) -> Iterator[Finding]:
    """Yield the problems of the mount that contains a path; `mountinfo` is the text of `/proc/self/mountinfo`."""
    found: tuple[str, str, frozenset[str]] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
        kind, _, *more = after.split()
        if f"{place}/".startswith(f"{point.rstrip('/')}/") and (found is None or len(point) >= len(found[0])):
            found = point, kind, frozenset(f"{before.split()[5]},{','.join(more)}".split(","))
    if found is None:
        return
    point, kind, options = found
    mend = "Move the home to a disk of this machine: EXUVIA_HOME, or --home."
    if kind in NETWORK:
        yield Finding(what=f"{point} is a network file system ({kind}), whose locks and syncs are unreliable.", mend=mend)
    if kind in PASSING:
        yield Finding(what=f"{point} is in memory ({kind}): its files are lost when the machine restarts.", mend=mend)
    if unsynced := sorted(UNSYNCED & options):
        yield Finding(
            what=f"{point} is mounted with {', '.join(unsynced)}: synced data can be lost in a power failure.",
            mend="Mount it without that option.",
        )


def descriptors(patient: DoctorContext) -> Iterator[Finding]:
    """Report a low limit on descriptors, of the running gateway or of one started from here."""
    limit = _limit_of(patient, "Max open files")
    limit = reachable() if limit is None else limit
    if 0 <= limit < DESCRIPTORS:
        yield Finding(
            what=f"The gateway can open at most {limit} files and connections at once.",
            mend=f"Raise the limit: `ulimit -n {DESCRIPTORS * 4}` before it starts, or LimitNOFILE= in its unit.",
        )


def address_space_limit(patient: DoctorContext) -> Iterator[Finding]:
    """Report a low limit on the address space, of the running gateway or of one started from here."""
    limit = _limit_of(patient, "Max address space")
    if sentence := address_space.shortage(resource.getrlimit(resource.RLIMIT_AS)[0] if limit is None else limit):
        yield Finding(
            what=sentence,
            mend="Raise the limit: `ulimit -v unlimited` before it starts, or remove LimitAS= from its unit. To limit"
            " the memory in use, set MemoryMax= there.",
        )


def _limit_of(patient: DoctorContext, name: str) -> int | None:
    """Return a limit of the running gateway by its name in `/proc/PID/limits`; None if it is unknown."""
    process = patient.process()
    if process is None:
        return None
    try:
        limits = Path(f"/proc/{process}/limits").read_text()
    except OSError:
        return None
    found = re.search(rf"^{name}\s+(\d+|unlimited)", limits, re.MULTILINE)
    return None if found is None else resource.RLIM_INFINITY if found[1] == "unlimited" else int(found[1])


def watching(patient: DoctorContext) -> Iterator[Finding]:
    """Report an operating system that refuses to watch files. One watch is set for a moment."""
    at_once = threading.Event()
    at_once.set()
    place = _existing(patient.home.root)
    try:
        for _ in library().watch(place, stop_event=at_once, recursive=False):
            break
    except (OSError, RuntimeError) as error:  # which of them depends on the limit
        yield Finding(
            what=f"The operating system refuses to watch files: {sentence_of(error)}.",
            mend="Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl; until then the"
            " gateway polls the files every few seconds.",
        )


def unit(patient: DoctorContext) -> Iterator[Finding]:
    """Report installed services that differ from this version's unit, or whose program is missing."""
    from gateway.support import service_unit  # noqa: PLC0415 - for quick help

    scopes: tuple[service_unit.Scope, ...] = ("user", "system")
    for scope in scopes:
        path = service_unit.place(scope, patient.environment)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        command = next((line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")), "")
        mend = f"Run `exuvia service install --{scope}` to rewrite it, then `systemctl daemon-reload`."
        if not text.startswith(service_unit.MARK):
            continue  # not installed, or not written by Exuvia
        if not Path(command.split('"')[1] if command.startswith('"') else command.partition(" ")[0]).exists():
            yield Finding(what=f"The service in {path} starts a program that does not exist.", mend=mend)
        elif text != service_unit.unit(scope, command):
            yield Finding(level="note", what=f"The service in {path} was written by another version, or edited.", mend=mend)


def _existing(place: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    while not place.exists():
        place = place.parent
    return place
