"""The paths of a workspace that commands must not change, or not read.

Besides those that are configured, these are the hooks and the configuration of every git repository: git runs what they
name when a person works in the repository. A path is guarded together with the folders above it, as far as the workspace:
a folder that could be renamed could be replaced, with everything in it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

import msgspec

from plugins.sandbox.policy import SandboxFailed, SandboxPolicy

MOST_FOLDERS = 10_000
"""The number of folders that are searched for repositories, the highest ones first."""

SAME_FOLDER = b".\n"
"""The content of a git `commondir` that says what git assumes without the file. With another content git runs the hooks of
another folder, so the file must stand there where it is not needed."""

_SKIPPED = frozenset(("node_modules", "objects", "refs", "logs", "hooks", "__pycache__"))
"""Folders that may be large, in which no repository is."""


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/dev", "/sys", "/boot")
_SHARED = ("/", "/tmp", "/var", "/run", "/home", "/root", "/opt", "/srv", "/mnt")  # noqa: S108
"""Folders of the system, and folders that hold those of others: neither is a workspace, of the former no part either."""


class GuardedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths relative to a workspace.

    Attributes:
        read_only: What must not be changed, and its content if it does not exist: bytes of a file, None for a folder.
        private: What must not be read either.
        fixed: Folders that may be changed, but not be renamed or removed. A folder stands after those above it.
        git_folders: The folders with the data of a repository.
    """

    read_only: Mapping[str, bytes | None]
    private: tuple[str, ...]
    fixed: tuple[str, ...]
    git_folders: tuple[str, ...]


def guarded_paths(policy: SandboxPolicy, workspace: Path) -> GuardedPaths:
    """Find what must be guarded in a workspace, whose path is resolved.

    Raises:
        SandboxFailed: A path leads through a symbolic link, which could be replaced, or the workspace is the system's.
    """
    if str(workspace) in _SHARED or any(workspace.is_relative_to(folder) for folder in _SYSTEM):
        raise SandboxFailed(f"{workspace} is a folder of the system; a workspace must be a folder of its own.")
    protected = () if policy.read_only else policy.protected
    read_only = {_existing_part(workspace, path): (b"" if PurePath(path).suffix else None) for path in protected}
    fixed, git_folders = set[str](), []
    for folder, names in () if policy.read_only else _folders(workspace):
        found = dict(_of_git(folder, names))
        read_only |= {f"{folder}/{name}": content for name, content in found.items()}
        if "hooks" in found:
            git_folders.append(folder)
            fixed |= {f"{folder}/{name}" for name in ("objects", "refs") if names.get(name)}
    private = [
        os.path.relpath(path, workspace) for path in policy.private if path != workspace and path.is_relative_to(workspace)
    ]
    private = [path for path in private if (workspace / path).exists()]
    if policy.read_only:
        read_only["."] = None
    for path in (*read_only, *private):
        _refuse_links(workspace, path)
    fixed |= {str(above) for path in (*read_only, *private, *fixed) for above in PurePath(path).parents if str(above) != "."}
    hidden = tuple(f"{path}/" for path in private)
    return GuardedPaths(
        read_only={path: content for path, content in sorted(read_only.items()) if not f"{path}/".startswith(hidden)},
        private=tuple(sorted(private)),
        fixed=tuple(sorted(path for path in fixed - set(private) if not f"{path}/".startswith(hidden))),
        git_folders=tuple(git_folders),
    )


def _folders(workspace: Path) -> Iterator[tuple[str, Mapping[str, bool]]]:
    """Yield the folders of a workspace, the highest first, each with its entries; True for a folder."""
    waiting = deque([""])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        folder = waiting.popleft()
        try:
            with os.scandir(workspace / folder) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        yield folder or ".", names
        waiting += [f"{folder}/{name}".lstrip("/") for name, below in names.items() if below and name not in _SKIPPED]


def _of_git(folder: str, names: Mapping[str, bool]) -> Iterator[tuple[str, bytes | None]]:
    """Yield the entries of a folder that name programs for git, or another folder that does, with their content if missing.

    A folder is recognised by what a command cannot remove from it, since that is guarded.
    """
    if names.get(".git") is False:
        yield ".git", b""
    if PurePath(folder).name == ".git" or (names.get("config") is False and names.get("objects") and names.get("refs")):
        yield "hooks", None
        yield "config", b""
        yield "commondir", SAME_FOLDER
    elif {"commondir", "gitdir"} <= names.keys():
        yield "commondir", b""
        yield "gitdir", b""
    if names.get("config.worktree") is False:
        yield "config.worktree", b""


def _existing_part(workspace: Path, path: str) -> str:
    """Return a path, or the first folder on the way to it that does not exist."""
    parts = PurePath(os.path.normpath(path)).parts
    for depth in range(1, len(parts)):
        if not os.path.lexists(workspace.joinpath(*parts[:depth])):
            return "/".join(parts[:depth])
    return "/".join(parts)


def _refuse_links(workspace: Path, path: str) -> None:
    parts = PurePath(path).parts
    if parts[:1] == ("..",) or PurePath(path).is_absolute():
        raise SandboxFailed(f"{path} is not inside the workspace, so it needs no protection there.")
    for depth in range(1, len(parts) + 1):
        if workspace.joinpath(*parts[:depth]).is_symlink():
            link = "/".join(parts[:depth])
            raise SandboxFailed(
                f"{link} in the workspace is a symbolic link, which a command could replace, and {path} must be protected."
                " Put the file itself there."
            )


def writable_parts(workspace: Path, guarded: GuardedPaths) -> Iterable[str]:
    """Yield the largest parts of a workspace that contain nothing guarded.

    For a protection that knows no exceptions below a folder: where something is guarded, every other entry is writable, but
    none can be added, renamed or removed. The data of a repository is guarded as a whole.
    """
    if "." in guarded.read_only:
        return
    closed = {*guarded.read_only, *guarded.private, *guarded.git_folders}
    if not closed:
        yield "."
        return
    mixed = {".", *guarded.fixed}
    waiting = ["."]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(workspace / folder) as entries:
                found = [(os.path.normpath(f"{folder}/{entry.name}"), entry.is_symlink()) for entry in entries]
        except OSError:
            continue
        for path, is_link in found:
            if path in closed or is_link:
                continue
            if path in mixed:
                waiting.append(path)
            else:
                yield path
