"""The arguments of bubblewrap for the level `full`.

The command sees `/usr`, a few files of `/etc`, and the workspace, each at its own path; a process tree, a network without
interfaces, System V objects and a host name of its own. It has no capability, as root neither: a user namespace alone would
leave root all of them inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from plugins.sandbox.policy import SandboxPolicy
from plugins.sandbox.workspace_guard import GuardedPaths

Operation: TypeAlias = Sequence[str | bytes | tuple[str]]
"""An option and its arguments. Bytes stand for a descriptor with that content, a tuple for a descriptor of that path."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

CONFIGURATION = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
"""What programs need of `/etc`. No secret is among it: no keys, no names of users, no passwords."""


def operations(
    policy: SandboxPolicy, workspace: Path, guarded: GuardedPaths, *, environment: Mapping[str, str], cwd: Path, calls: bytes
) -> list[Operation]:
    """Return the options of bubblewrap for a command.

    Args:
        workspace: The resolved path of the workspace.
        guarded: What is guarded in it.
        calls: The filter of system calls.
    """
    limits = policy.limits
    return [
        *([option] for option in ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net")),
        ["--unshare-cgroup-try"],
        ["--hostname", "sandbox"],
        ["--die-with-parent"],
        ["--new-session"],
        ["--cap-drop", "ALL"],
        ["--clearenv"],
        *(["--setenv", name, value] for name, value in environment.items()),
        *_system(),
        ["--proc", "/proc"],
        # A process whose user is root, without any capability, may still write what belongs to root, as the settings do.
        ["--remount-ro", "/proc"],
        ["--dev", "/dev"],
        ["--size", str(limits.tmp), "--perms", "1777", "--tmpfs", "/dev/shm"],  # noqa: S108 - of its own
        ["--remount-ro", "/dev"],
        ["--size", str(limits.tmp), "--perms", "1777", "--tmpfs", "/tmp"],  # noqa: S108
        *_readable(policy),
        *_workspace(workspace, guarded),
        ["--remount-ro", "/"],
        ["--chdir", str(cwd)],
        ["--seccomp", calls],
    ]


def _system() -> Iterator[Operation]:
    for folder in SYSTEM:
        if os.path.islink(folder):
            yield ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            yield ["--ro-bind", folder, folder]
    for name in CONFIGURATION:
        yield ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    user, group = os.geteuid(), os.getegid()
    yield ["--ro-bind-data", f"user:x:{user}:{group}::/tmp:/bin/sh\n".encode(), "/etc/passwd"]
    yield ["--ro-bind-data", f"user:x:{group}:\n".encode(), "/etc/group"]
    yield ["--ro-bind-data", b"127.0.0.1 localhost sandbox\n::1 localhost\n", "/etc/hosts"]
    yield ["--ro-bind-data", b"passwd: files\ngroup: files\nhosts: files\n", "/etc/nsswitch.conf"]


def _readable(policy: SandboxPolicy) -> Iterator[Operation]:
    for path in policy.readable:
        if path.exists():
            yield ["--ro-bind", str(path), str(path)]
    shown = ("/usr", *map(str, policy.readable))
    for path in policy.private:
        if any(path.is_relative_to(folder) for folder in shown):
            yield from _hidden(path)


def _workspace(workspace: Path, guarded: GuardedPaths) -> Iterator[Operation]:
    for path in (".", *guarded.fixed):
        whole = os.path.normpath(workspace / path)
        yield ["--bind-fd", (whole,), whole]
    for path in guarded.read_only:
        whole = os.path.normpath(workspace / path)
        yield ["--ro-bind-fd", (whole,), whole]
    for path in guarded.private:
        yield from _hidden(workspace / path)


def _hidden(path: Path) -> Iterator[Operation]:
    """Yield what puts something unreadable over a folder or file."""
    if path.is_dir():
        yield ["--perms", "0000", "--tmpfs", str(path)]
        yield ["--remount-ro", str(path)]
    elif path.exists():
        yield ["--perms", "0000", "--ro-bind-data", b"", str(path)]
