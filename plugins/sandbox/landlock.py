"""The rules of Landlock for the level `partial` ("man 7 landlock").

Landlock grants rights below a folder and knows no exceptions. So the workspace is writable in parts, see
`workspace_guard.writable_parts`: where something is protected, entries can be changed, but none can be added or removed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from plugins.sandbox.bubblewrap import CONFIGURATION, SYSTEM
from plugins.sandbox.policy import SandboxFailed, SandboxPolicy
from plugins.sandbox.workspace_guard import GuardedPaths, writable_parts

LEAST_ABI = 6
"""The version of Landlock that confines signals and abstract sockets: Linux 6.12."""

Rule: TypeAlias = tuple[str, int]
"""A path without symbolic links, and the rights below it."""

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _DEVICE_CONTROL, _MAKE_CHARACTER, _MAKE_BLOCK, _MAKE_SOCKET = 1 << 14, 1 << 15, 1 << 6, 1 << 11, 1 << 9
_SEE = _EXECUTE | _READ | _LIST
_CHANGE = 0xFFFF & ~(_DEVICE_CONTROL | _MAKE_CHARACTER | _MAKE_BLOCK | _MAKE_SOCKET)

_CREATE_RULESET, _VERSION = 444, 1

_DEVICES = ("null", "zero", "full", "random", "urandom")
_OF_PROC = ("self", "cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "sys/vm/overcommit_memory")


def landlock_abi() -> int:
    """Return the version of Landlock in this kernel, 0 if there is none or it is not enabled."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def rules(policy: SandboxPolicy, workspace: Path, guarded: GuardedPaths) -> list[Rule]:
    """Return the rules for a command.

    Raises:
        SandboxFailed: Something that must not be read lies in what must be readable.
    """
    readable = [*SYSTEM, *(f"/etc/{name}" for name in CONFIGURATION), "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"]
    readable += [*(f"/proc/{name}" for name in _OF_PROC if name != "self"), "/sys/devices/system/cpu"]
    shown = ["/usr", *map(str, policy.readable)]
    for path in policy.private:
        if any(path.is_relative_to(folder) for folder in shown):
            raise SandboxFailed(f"{path} must not be read, but lies in a folder that commands read. Move it elsewhere.")
    found = [(os.path.realpath(path), _SEE) for path in [*readable, *map(str, policy.readable)] if os.path.exists(path)]
    found += [(f"/dev/{name}", _READ | _WRITE) for name in _DEVICES]
    found += [(str(workspace / path), _CHANGE) for path in writable_parts(workspace, guarded)]
    return [*found, *_of_workspace(workspace, guarded)]


def _of_workspace(workspace: Path, guarded: GuardedPaths) -> Iterator[Rule]:
    """Yield the rules for reading the workspace: as a whole, or its parts if some of it is private."""
    if not guarded.private:
        yield str(workspace), _SEE
        return
    private = GuardedPaths(read_only={}, private=guarded.private, fixed=_above(guarded.private), git_folders=())
    yield from ((str(workspace / path), _SEE) for path in writable_parts(workspace, private))


def _above(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple({str(above) for path in paths for above in Path(path).parents if str(above) != "."})
