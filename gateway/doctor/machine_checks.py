"""Checks of the machine: limits, disk, file system, SQLite, the service's unit and the gateway's address."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import importlib.util
import os
import re
import resource
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from gateway.config.keys import execution_keys
from gateway.doctor.findings import DoctorContext, Finding
from gateway.support.errors import sentence_of
from gateway.support.resource_limits import address_space_shortage, reachable_descriptors
from plugins.mcp.mcp_settings import EXTRA
from plugins.sandbox.detection import detect
from plugins.support.file_watcher import library
from plugins.tools.execution.command_source import command_problems

LEAST_FREE_BYTES = 512 * 1024 * 1024
LEAST_FREE_SHARE = 0.02
LEAST_FREE_FILES = 2000
"""Thresholds for a nearly full disk: bytes, share of the disk, files. Months of journals are a few hundred MB."""

LEAST_DESCRIPTORS = 1024
"""With fewer descriptors, a gateway accepts fewer than about 400 connections (`gateway.support.resource_limits`)."""

TIMEOUT = 2.0
"""Seconds to wait for a response of the gateway, or whatever uses its address."""

NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.s3fs", "afs", "ceph", "glusterfs", "davfs")
)
MEMORY_FILE_SYSTEMS = frozenset(("tmpfs", "ramfs", "devtmpfs"))
UNSAFE_MOUNT_OPTIONS = frozenset(("nobarrier", "barrier=0", "volatile", "fsync=volatile", "eatmydata"))


def mcp_servers(context: DoctorContext) -> Iterator[Finding]:
    """Report MCP servers that cannot start: programs that do not exist, and the SDK."""
    servers = {} if context.config is None else context.config.mcp
    if servers and importlib.util.find_spec("mcp") is None:
        yield Finding("The SDK for the servers of [mcp] is not installed.", f"pip install '{EXTRA}'")
    for name, keys in servers.items():
        if keys.command and shutil.which(keys.command[0], path=context.environment.get("PATH")) is None:
            yield Finding(
                f"The program {keys.command[0]!r} of the MCP server {name} is not found.",
                "Install it, or give its whole path; the gateway's own PATH counts, which a service may set differently.",
            )


def sqlite_extensions(_: DoctorContext) -> Iterator[Finding]:
    """Report an SQLite that cannot load the extension for vectors."""
    from sessions.catalog import sqlite  # noqa: PLC0415 - to see which copy the gateway takes here

    connection = sqlite.in_memory()
    if not hasattr(connection, "enable_load_extension"):
        yield Finding(
            "This Python's SQLite loads no extensions, and the package pysqlite3 is not installed.",
            "Vector search is slower until then: `pip install pysqlite3`, or use another Python.",
            level="note",
        )
        connection.close()
        return
    try:
        connection.enable_load_extension(True)
        importlib.import_module("sqlite_vec").load(connection)
    except Exception as error:  # either copy of SQLite has its own error classes
        yield Finding(
            f"SQLite does not load the extension for vectors: {sentence_of(error)}.",
            "Reinstall the extension: `pip install --force-reinstall sqlite-vec`.",
            level="note",
        )
    finally:
        connection.close()


def disk(context: DoctorContext) -> Iterator[Finding]:
    """Report a disk that is nearly full, in bytes or in files."""
    place = _existing(context.home.root)
    room = os.statvfs(place)
    free, whole = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    mend = "Free space, or move the home to a larger disk; messages are refused when the disk is full."
    if whole and (free < LEAST_FREE_BYTES or free < LEAST_FREE_SHARE * whole):
        yield Finding(f"The disk under {place} is nearly full: {free // 2**20} MB left.", mend)
    if room.f_files and room.f_favail < LEAST_FREE_FILES:
        yield Finding(f"The disk under {place} has room for only {room.f_favail} more files.", mend)


def file_system(context: DoctorContext) -> Iterator[Finding]:
    """Report a home that is not on a local disk."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return  # available on Linux only
    yield from mount_findings(mounts, os.path.realpath(_existing(context.home.root)))


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
    if kind in NETWORK_FILE_SYSTEMS:
        yield Finding(f"{point} is a network file system ({kind}), whose locks and syncs are unreliable.", mend)
    if kind in MEMORY_FILE_SYSTEMS:
        yield Finding(f"{point} is in memory ({kind}): its files are lost when the machine restarts.", mend)
    if unsynced := sorted(UNSAFE_MOUNT_OPTIONS & options):
        yield Finding(
            f"{point} is mounted with {', '.join(unsynced)}: synced data can be lost in a power failure.",
            "Mount it without that option.",
        )


def descriptors(context: DoctorContext) -> Iterator[Finding]:
    """Report a low limit on descriptors, of the running gateway or of one started from here."""
    limit = _limit_of(context, "Max open files")
    limit = reachable_descriptors() if limit is None else limit
    if 0 <= limit < LEAST_DESCRIPTORS:
        yield Finding(
            f"The gateway can open at most {limit} files and connections at once.",
            f"Raise the limit: `ulimit -n {LEAST_DESCRIPTORS * 4}` before it starts, or LimitNOFILE= in its unit.",
        )


def address_space_limit(context: DoctorContext) -> Iterator[Finding]:
    """Report a low limit on the address space, of the running gateway or of one started from here."""
    limit = _limit_of(context, "Max address space")
    if sentence := address_space_shortage(resource.getrlimit(resource.RLIMIT_AS)[0] if limit is None else limit):
        yield Finding(
            sentence,
            "Raise the limit: `ulimit -v unlimited` before it starts, or remove LimitAS= from its unit. To limit"
            " the memory in use, set MemoryMax= there.",
        )


def _limit_of(context: DoctorContext, name: str) -> int | None:
    """Return a limit of the running gateway by its name in `/proc/PID/limits`; None if it is unknown."""
    process = context.process()
    if process is None:
        return None
    try:
        limits = Path(f"/proc/{process}/limits").read_text()
    except OSError:
        return None
    found = re.search(rf"^{name}\s+(\d+|unlimited)", limits, re.MULTILINE)
    return None if found is None else resource.RLIM_INFINITY if found[1] == "unlimited" else int(found[1])


def watching(context: DoctorContext) -> Iterator[Finding]:
    """Report an operating system that refuses to watch files. One watch is set for a moment."""
    at_once = threading.Event()
    at_once.set()
    place = _existing(context.home.root)
    try:
        for _ in library().watch(place, stop_event=at_once, recursive=False):
            break
    except (OSError, RuntimeError) as error:  # which of them depends on the limit
        yield Finding(
            f"The operating system refuses to watch files: {sentence_of(error)}.",
            "Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl; until then the"
            " gateway polls the files every few seconds.",
        )


def unit(context: DoctorContext) -> Iterator[Finding]:
    """Report installed services that differ from this version's unit, or whose program is missing."""
    from gateway.support import service_unit  # noqa: PLC0415 - for quick help

    scopes: tuple[service_unit.Scope, ...] = ("user", "system")
    for scope in scopes:
        path = service_unit.place(scope, context.environment)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        command = next((line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")), "")
        mend = f"Run `exuvia service install --{scope}` to rewrite it, then `systemctl daemon-reload`."
        if not text.startswith(service_unit.MARK):
            continue  # not installed, or not written by Exuvia
        if not Path(command.split('"')[1] if command.startswith('"') else command.partition(" ")[0]).exists():
            yield Finding(f"The service in {path} starts a program that does not exist.", mend)
        elif text != service_unit.unit(scope, command):
            yield Finding(f"The service in {path} was written by another version, or edited.", mend, level="note")


def _existing(place: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    while not place.exists():
        place = place.parent
    return place


def port(context: DoctorContext) -> Iterator[Finding]:
    """Report a configured address that cannot be used, unless this home's gateway has it."""
    if context.config is None or context.config.gateway.port == 0:
        return
    host, number = context.config.gateway.host.strip("[]"), context.config.gateway.port
    mend = "Stop that program, or choose another port: gateway.port, EXUVIA_PORT or --port."
    process, owner = context.process(), _listener(number)
    if not _accepts_connections(host, number):
        if process is None:
            yield from _try_to_listen(host, number)
        return
    if process is not None:
        return  # it is running, here or at the address of its command line
    if _is_exuvia(host, number):
        yield Finding(f"{host}:{number} is in use by another Exuvia{_describe_process(owner)} with another home.", mend)
    else:
        yield Finding(f"{host}:{number} is in use by another program{_describe_process(owner)}.", mend)


def _try_to_listen(host: str, number: int) -> Iterator[Finding]:
    """Listen on the address for a moment, as a start would."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, number))
        except OSError as error:
            yield Finding(
                f"{host}:{number} cannot be listened on: {error.strerror or error}.",
                "Set gateway.host to an address of this machine, and gateway.port to a port from 1024 up.",
            )


def _accepts_connections(host: str, number: int) -> bool:
    """Return True if something accepts connections there."""
    try:
        with socket.create_connection((_reachable(host), number), timeout=TIMEOUT):
            return True
    except OSError:
        return False


def _is_exuvia(host: str, number: int) -> bool:
    """Return True if a gateway's health check responds there."""
    connection = http.client.HTTPConnection(_reachable(host), number, timeout=TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return response.status == 200 and response.read(64) == b"ok\n"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def sandbox(context: DoctorContext) -> Iterator[Finding]:
    """Report the level of the sandbox if it is not the best one, and whether commands are offered and confined."""
    status = asyncio.run(detect())
    if status.level != "full":
        yield Finding(
            f"The sandbox for commands reaches the level `{status.level}`: {status.reason}", status.fix, level="note"
        )
    if context.config is not None:
        for problem in command_problems(execution_keys(context.config), status):
            yield Finding(problem, "Change `[sandbox]`, or disable the tools `shell` and `python`; docs/tools.md explains.")


def _listener(number: int) -> int | None:
    """Return the process that listens on a port, if Linux shows it to this user."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        fields = [line.split() for line in lines]
        inodes |= {
            f"socket:[{each[9]}]" for each in fields if each[3] == "0A" and int(each[1].rpartition(":")[2], 16) == number
        }
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(os.readlink(entry) in inodes for entry in folder.iterdir()):
                return int(folder.parent.name)
        except OSError:
            continue  # another user's, or gone meanwhile
    return None


def _describe_process(process: int | None) -> str:
    if process is None:
        return ""
    try:
        name = re.sub(r"[^\w .-]", "", Path(f"/proc/{process}/comm").read_text().strip())
    except OSError:
        name = "exited"
    return f" (process {process}, {name})"
