"""What a command in the sandbox may do, and the levels of confinement."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from plugins.support.addresses import HostPattern
from plugins.support.errors import PluginError

Level: TypeAlias = Literal["full", "partial", "none"]
"""`full`: namespaces by bubblewrap, and a filter of system calls. `partial`: Landlock and the filter. `none`: unconfined."""

AcceptedLevel: TypeAlias = Literal["auto", "full", "partial", "none"]

PROXY_PORT = 3128
"""The port of 127.0.0.1 inside the sandbox at which commands reach the proxy."""

_MIB = 1024 * 1024


class SandboxKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sandbox]`: the least level at which commands are offered, and the hosts that they may reach."""

    level: AcceptedLevel = "auto"
    network: tuple[HostPattern, ...] = ()


class SandboxFailed(PluginError):
    """A command could not be started in the sandbox."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a command with all processes that it starts. A command that exceeds one is ended.

    Attributes:
        memory: Bytes of memory of all processes together, and of each one.
        processes: The number of processes and threads.
        file_size: Bytes of a single file.
        disk: Bytes by which the free space of the disk may shrink while the command runs.
        tmp: Bytes of `/tmp` and of `/dev/shm`, each, at level `full`.
        cpu_seconds: Processor time of each process.
        output: Bytes of output.
        open_files: Open files of each process.
    """

    memory: int = 4096 * _MIB
    processes: int = 512
    file_size: int = 2048 * _MIB
    disk: int = 8192 * _MIB
    tmp: int = 512 * _MIB
    cpu_seconds: int = 3600
    output: int = 64 * _MIB
    open_files: int = 1024


class SandboxPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The files and the network that a command may use, and its limits.

    Attributes:
        workspace: The folder that the command works in and may change.
        read_only: The command may change nothing in the workspace.
        protected: Paths relative to the workspace that the command may read only, whether they exist or not. The hooks and
            the configuration of each git repository in the workspace are always protected.
        readable: Files and folders outside of the workspace that the command may read too.
        private: Files and folders that the command must not read, wherever they are.
        network: The command may use a proxy; only at level `full`.
        limits: The limits.
    """

    workspace: Path
    read_only: bool = False
    protected: tuple[str, ...] = ("AGENTS.md", "SOUL.md", "skills")
    readable: tuple[Path, ...] = ()
    private: tuple[Path, ...] = ()
    network: bool = False
    limits: Limits = Limits()


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The best level that works here; if it is not `full`, a sentence why, and one that says how to raise it."""

    level: Level
    reason: str = ""
    fix: str = ""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command.

    Attributes:
        exit_code: As a shell reports it: 128 more than the number of a signal.
        reason: The limit that was exceeded (`memory`, `processes`, `disk`, `output`), `killed`, or empty.
    """

    exit_code: int
    reason: str = ""


def accepted_level(setting: AcceptedLevel, status: SandboxStatus) -> Level | None:
    """Return the level at which commands run, or None if they must not be offered.

    `auto` and `partial` accept the best level but `none`; `none` runs every command unconfined.
    """
    if setting == "none":
        return "none"
    enough = {"full"} if setting == "full" else {"full", "partial"}
    return status.level if status.level in enough else None
