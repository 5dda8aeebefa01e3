"""The program that runs one command in the sandbox: it starts it, watches its limits, and ends every process of it.

It is a process of its own, since it must outlive a gateway that is killed, and since what happens between fork and exec must
not happen in a program with threads. It needs the standard library only, and is started without site-packages.

The gateway keeps one end of a socket. When that end is closed, by a request or by the gateway's death, the command ends.
Orphans become children of this process ("man 2 PR_SET_CHILD_SUBREAPER"), so nothing is left when it has no child any more.
Values are passed by `marshal`, since the import of `json` would take as long as everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import marshal
import os
import resource
import select
import signal
import stat
import struct
import sys
from _socket import AF_INET, AF_UNIX, CMSG_LEN, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket, socketpair

TYPE_CHECKING = False  # that of `typing`, whose import takes as long as the command that is started
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

_SET_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 22, 24, 36, 38
_FILTER, _CAPABILITIES, _CAPABILITY_VERSION = 2, 64, 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_NS_GET_USERNS, _NEW_MOUNTS, _NEW_USER, _NEW_PROCESSES, _NEW_NET = 0xB701, 0x20000, 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18

_ALL_FILES, _ALL_TCP, _ALL_SCOPES = 0xFFFF, 0x3, 0x3
"""What Landlock handles from ABI 6 on: every access to files, binding and connecting, abstract sockets and signals."""
_FILE_RIGHTS = 0xC007
"""The rights that apply to a file: execute, write, read, truncate, and ioctl of devices."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""The devices that bubblewrap binds."""

_SPARE = 32
"""Processes that the kernel allows beyond the limit, so that a command is seen to exceed it and is ended, instead of going
on with those it has. Others of the same user count too."""

_SECONDS_BETWEEN_CHECKS = 0.1
_SETUP_SECONDS = 20.0

_GATE = 'printf . >&4 && read -r _ <&3 && exec 3<&- 4>&- 2>&1 && exec "$@"'
"""Waits inside the finished sandbox until its mounts have been verified and its limits are set, then becomes the command."""

_libc = ctypes.CDLL(None, use_errno=True)


class SetupFailed(Exception):
    """The sandbox could not be made; `str(error)` says why."""


def main() -> NoReturn:
    """Run the command of the specification in descriptor `argv[1]`, for the gateway at the socket `argv[2]`."""
    control = socket(fileno=int(sys.argv[2]))
    os.set_inheritable(control.fileno(), False)
    with open(int(sys.argv[1]), "rb") as file:
        supervisor = Supervisor(marshal.load(file), control)  # noqa: S302 - written by the gateway
    try:
        supervisor.run()
        report: dict[str, Any] = {"exit_code": supervisor.exit_code, "reason": supervisor.reason}
    except Exception as error:  # whatever it is, no process may be left
        supervisor.end_all()
        report = {"failed": str(error)}
    with contextlib.suppress(OSError):  # the gateway may have died
        control.send(marshal.dumps(report))
    os._exit(0)


class Supervisor:
    """One command and its processes.

    Attributes:
        exit_code: As a shell reports it, once the command has ended.
        reason: Why it was ended, if it was.
    """

    def __init__(self, specification: dict[str, Any], control: socket) -> None:
        self._specification = specification
        self._limits: dict[str, int] = specification["limits"]
        self._control = control
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _only_wake)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        _prctl(_SET_PDEATHSIG, signal.SIGTERM)
        with contextlib.suppress(OSError):  # as root: before all that a fork bomb runs
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        self._child = 0
        self._has_namespace = False
        self._ended = False
        self.exit_code = 128 + signal.SIGKILL
        self.reason = ""

    def run(self) -> None:
        """Start the command, wait until it ends or must end, and end all of its processes.

        Raises:
            SetupFailed: The sandbox could not be made.
        """
        with contextlib.ExitStack() as stack:
            isolated = self._specification["level"] == "full"
            for path, content in self._specification["placeholders"].items():
                stack.enter_context(_Placeholder(path, content))
            listener = None
            if isolated:
                listener = self._start_isolated()
            else:
                self._start_here(stack)
            _send(self._control, marshal.dumps({"started": True}), listener)
            if listener is not None:
                os.close(listener)
            self._watch()
            self.end_all()

    # --- starting ---

    def _start_isolated(self) -> int | None:
        """Start bubblewrap, verify what it mounted, and let the command begin; return a listening socket if it gets one."""
        specification = self._specification
        opened: dict[int, str] = {}
        words = [self._word(word, operation, opened) for operation in specification["bubblewrap"] for word in operation]
        arguments = _file_with(b"".join(os.fsencode(word) + b"\0" for word in words))
        ready, is_ready = os.pipe2(os.O_CLOEXEC)
        goes, go = os.pipe2(os.O_CLOEXEC)
        complaints, complains = os.pipe2(os.O_CLOEXEC)
        self._has_namespace = True
        self._child = os.fork()
        if self._child == 0:
            os.dup2(complains, 2)
            with _exit_on_failure(2):
                if os.geteuid() == 0:
                    _make_devices_read_only()
                self._limit_resources()
                for descriptor, target in [
                    (fcntl.fcntl(each, fcntl.F_DUPFD, 10), at) for each, at in ((goes, 3), (is_ready, 4))
                ]:
                    os.dup2(descriptor, target)
                    os.close(descriptor)
                program = specification["program"]
                shell = ["/bin/sh", "-c", _GATE, "sh", *specification["argv"]]
                os.execve(program, [program, "--args", str(arguments), "--", *shell], {})  # noqa: S606
        for descriptor in (is_ready, goes, complains, arguments):
            os.close(descriptor)
        if not self._arrives(ready):
            self.end_all()
            raise SetupFailed(_read_all(complaints))
        *_, gate = descendants(os.getpid())
        for descriptor, path in opened.items():
            _verify(gate, descriptor, path)
            os.close(descriptor)
        resource.prlimit(gate, resource.RLIMIT_NPROC, (self._limits["processes"] + _SPARE,) * 2)
        listener = _listener_beside(gate, specification["port"]) if specification["network"] else None
        os.write(go, b"\n")
        os.close(go)
        return listener

    def _word(self, word: Any, operation: list[Any], opened: dict[int, str]) -> str:
        """Return an argument of bubblewrap; for a tuple with a path, or for content, the number of a descriptor of it."""
        match word:
            case (path,):
                try:
                    descriptor = fcntl.fcntl(open_without_links(path), fcntl.F_DUPFD, 10)
                except OSError as error:
                    raise SetupFailed(f"{path} changed while the command was started: {error.strerror}") from error
                opened[descriptor] = operation[-1]
                return str(descriptor)
            case bytes():
                return str(_file_with(word))
            case _:
                return str(word)

    def _start_here(self, stack: contextlib.ExitStack) -> None:
        """Start the command in this file tree, confined by Landlock and the filter of system calls, or not at all."""
        specification = self._specification
        private = f"{specification['tmp']}/exuvia-{os.urandom(8).hex()}"
        os.mkdir(private, 0o700)
        stack.callback(_remove, private)
        environment = specification["env"] | {"HOME": private, "TMPDIR": private}
        processes = self._limits["processes"] + _SPARE + _threads_of_user()
        complaints, complains = os.pipe2(os.O_CLOEXEC)
        # No limit on processes binds root, so that only the end of a namespace is faster than a fork bomb.
        confined = specification["level"] == "partial"
        self._has_namespace = confined and os.geteuid() == 0 and _libc.unshare(_NEW_PROCESSES) == 0
        self._child = os.fork()
        if self._child == 0:
            with _exit_on_failure(complains):
                if self._has_namespace:
                    _fork_below_first_process()
                os.setsid()
                _prctl(_SET_PDEATHSIG, signal.SIGKILL)
                os.dup2(1, 2)
                self._limit_resources()
                resource.setrlimit(resource.RLIMIT_NPROC, _within(resource.RLIMIT_NPROC, processes))
                os.chdir(specification["cwd"])
                if confined:
                    _drop_capabilities()
                    _confine([*specification["rules"], [private, _ALL_FILES & ~1]])
                    _filter_calls(specification["filter"])
                os.closerange(3, complains)
                os.closerange(complains + 1, 65536)
                _become(specification["argv"], environment)
        os.close(complains)
        if complaint := _read_all(complaints):
            raise SetupFailed(complaint)

    def _limit_resources(self) -> None:
        for kind, value in (
            (resource.RLIMIT_DATA, self._limits["memory"]),
            (resource.RLIMIT_FSIZE, self._limits["file_size"]),
            (resource.RLIMIT_NOFILE, self._limits["open_files"]),
            (resource.RLIMIT_CPU, self._limits["cpu_seconds"]),
            (resource.RLIMIT_CORE, 1),  # 0 would still send a dump to a program; see "man 5 core"
        ):
            resource.setrlimit(kind, _within(kind, value))
        with contextlib.suppress(OSError):  # a service may not change its priority
            os.nice(5)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")

    def _arrives(self, ready: int) -> bool:
        """Wait for the byte that the gate sends; return False if it does not arrive."""
        waiting = select.poll()
        waiting.register(ready, select.POLLIN)
        waiting.register(self._control, select.POLLIN)
        found = waiting.poll(_SETUP_SECONDS * 1000)
        return [descriptor for descriptor, _ in found] == [ready] and bool(os.read(ready, 1))

    # --- watching and ending ---

    def _watch(self) -> None:
        """Wait for the end of the command, for the gateway's request or death, or for a limit that is exceeded."""
        waiting = select.poll()
        waiting.register(self._woken, select.POLLIN)
        waiting.register(self._control, select.POLLIN)
        disk = {path: os.statvfs(path) for path in self._specification["disks"]}
        while not self._reap():
            found = dict(waiting.poll(_SECONDS_BETWEEN_CHECKS * 1000))
            stopped = self._control.fileno() in found
            if self._woken in found:
                stopped = stopped or signal.SIGTERM in os.read(self._woken, 4096)
            self.reason = "killed" if stopped else self._exceeded(disk)
            if self.reason and not self._reap():
                return
        self.reason = ""

    def _exceeded(self, disk: dict[str, os.statvfs_result]) -> str:
        """Return the limit that the processes exceed together, or an empty string."""
        for path, before in disk.items():
            now = os.statvfs(path)
            if (before.f_bavail - now.f_bavail) * now.f_frsize > self._limits["disk"]:
                return "disk"
        processes, threads = [], 0
        for process in descendants(os.getpid()):
            processes.append(process)
            threads += _threads(process)
            if threads > self._limits["processes"]:
                return "processes"
        # Shared pages are counted once only where it matters, since that takes the kernel long.
        memory = self._limits["memory"]
        if sum(map(_resident, processes)) > memory and sum(map(_proportional, processes)) > memory:
            return "memory"
        return ""

    def _first_processes(self) -> set[int]:
        """Return the processes with which a namespace ends, which are made to end before the others run again."""
        children = _children(os.getpid())
        found = {*children, *(below for child in children for below in _children(child)[:1])}
        for process in found:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(process, os.SCHED_RR, os.sched_param(1))
        return found

    def _reap(self) -> bool:
        """Collect processes that have ended; return True once the command has."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if found[0] == self._child:
                    self._ended = True
                    code = os.waitstatus_to_exitcode(found[1])
                    self.exit_code = code if code >= 0 else 128 - code
        return self._ended

    def end_all(self) -> None:
        """Kill every process that descends from this one; return when there is none any more.

        With the first process of a namespace the kernel ends all others. Elsewhere all are stopped first: while they run,
        they may start others faster than they are found.
        """
        while True:
            self._reap()
            known = self._first_processes() if self._has_namespace else _stopped()
            for process in known:
                _signal(process, signal.SIGKILL)
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return


def _only_wake(*_: object) -> None:
    """Handle a signal by waking the loop."""


class _Placeholder:
    """Something empty at a protected path where nothing is, since only what exists can be protected by a mount.

    Commands share it by a lock; the last one removes it. Its mode tells it from a file that a person has made.
    """

    def __init__(self, path: str, content: bytes | None) -> None:
        self._folder, self._name = os.path.split(path)
        self._content = content

    def __enter__(self) -> None:
        try:
            self._above = open_without_links(self._folder)
            while not self._hold():
                pass
        except OSError as error:
            raise SetupFailed(f"{self._folder}/{self._name} cannot be protected: {error.strerror}") from error

    def _hold(self) -> bool:
        """Make it if it is missing, and lock it; return False if another command has removed it meanwhile."""
        with contextlib.suppress(FileExistsError):
            if self._content is None:
                os.mkdir(self._name, 0o555, dir_fd=self._above)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(self._name, flags, 0o444, dir_fd=self._above), "wb") as file:
                    file.write(self._content)
        self._file = os.open(self._name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self._above)
        fcntl.flock(self._file, fcntl.LOCK_SH)
        if self._is_there():
            return True
        os.close(self._file)
        return False

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._name, dir_fd=self._above, follow_symlinks=False), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_there() and self._is_ours():
                (os.rmdir if self._content is None else os.unlink)(self._name, dir_fd=self._above)
        os.close(self._file)
        os.close(self._above)

    def _is_ours(self) -> bool:
        found = os.fstat(self._file)
        if self._content is None:
            return found.st_mode & 0o777 == 0o555
        return found.st_mode & 0o777 == 0o444 and os.pread(self._file, len(self._content) + 1, 0) == self._content


# --- processes ---


def descendants(process: int) -> Iterator[int]:
    """Yield the processes that descend from one, each after its parent."""
    waiting = [process]
    while waiting:
        children = _children(waiting.pop())
        yield from children
        waiting += children


def _stopped() -> set[int]:
    """Stop every process that descends from this one, and return them."""
    found = set[int]()
    while new := set(descendants(os.getpid())) - found:
        for process in new:
            _signal(process, signal.SIGSTOP)
        found |= new
    return found


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _signal(process: int, number: int) -> None:
    """Signal a process if it still descends from this one: its number may have been given to another."""
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return
    try:
        parent = process
        while parent not in (0, os.getpid()):
            with open(f"/proc/{parent}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        if parent:
            signal.pidfd_send_signal(descriptor, number)
    except (OSError, ValueError, IndexError):
        pass
    finally:
        os.close(descriptor)


def _threads(process: int) -> int:
    try:
        return len(os.listdir(f"/proc/{process}/task"))
    except OSError:
        return 0


def _resident(process: int) -> int:
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _proportional(process: int) -> int:
    """Return the memory of a process, with its share of each page that others have too."""
    try:
        with open(f"/proc/{process}/smaps_rollup") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except OSError:
        return 0


def _threads_of_user() -> int:
    """Return the number of threads that this user has, all of which count for RLIMIT_NPROC."""
    user, found = os.getuid(), 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                found += _threads(int(name))
    return found


# --- system calls ---


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _syscall(number: int, *arguments: Any) -> int:
    found = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def open_without_links(path: str, root: str = "/") -> int:
    """Return a descriptor, for O_PATH only, of an absolute path none of whose components is a symbolic link.

    One component is opened after another: the service of systemd denies openat2.
    """
    current = os.open(root, os.O_PATH | os.O_CLOEXEC)
    try:
        for part in filter(None, path.split("/")):
            following = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = following
        if stat.S_ISLNK(os.fstat(current).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except BaseException:
        os.close(current)
        raise
    return current


def _file_with(content: bytes) -> int:
    """Return the descriptor of a file in memory, open at its beginning, that is inherited."""
    descriptor = os.memfd_create("sandbox", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    kept = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return kept


def _verify(process: int, descriptor: int, path: str) -> None:
    """Check that a path in the file tree of a process is what a descriptor names, and that no link led there."""
    try:
        found = open_without_links(path, f"/proc/{process}/root")
        same = os.path.sameopenfile(found, descriptor)
        os.close(found)
    except OSError:
        same = False
    if not same:
        raise SetupFailed(f"{path} changed while the command was started")


def _listener_beside(process: int, port: int) -> int:
    """Return a socket that listens in the network of a process.

    A child enters it, since a process cannot return from a user namespace.
    """
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    child = os.fork()
    if child == 0:
        with _exit_on_failure(theirs.fileno()):
            network = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
            owner = fcntl.ioctl(network, _NS_GET_USERNS)
            for descriptor, kind in ((owner, _NEW_USER), (network, _NEW_NET)):
                if _libc.setns(descriptor, kind) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            # Any address: the loopback interface, which is the only one, may not be up yet.
            listener = socket(AF_INET, SOCK_STREAM)
            listener.bind(("0.0.0.0", port))  # noqa: S104
            listener.listen(128)
            _send(theirs, b"listens", listener.fileno())
            os._exit(0)
    theirs.close()
    said, sent, _, _ = ours.recvmsg(4096, CMSG_LEN(4))
    ours.close()
    os.waitpid(child, 0)
    if not sent:
        raise SetupFailed(f"no socket could be opened in the sandbox: {said.decode(errors='replace')}")
    [(_, _, number)] = sent
    return int(struct.unpack("i", number)[0])


def _send(receiver: socket, content: bytes, descriptor: int | None) -> None:
    """Send a message, with a descriptor if there is one."""
    ancillary = [] if descriptor is None else [(SOL_SOCKET, SCM_RIGHTS, struct.pack("i", descriptor))]
    receiver.sendmsg([content], ancillary)


def _make_devices_read_only() -> None:
    """Enter a mount namespace whose devices are read-only, so that root cannot change their modes; they remain writable."""
    if _libc.unshare(_NEW_MOUNTS) != 0 or _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for name in _DEVICES:
        path = b"/dev/" + name.encode()
        for flags in (_MS_BIND, _MS_BIND | _MS_REMOUNT | _MS_RDONLY):
            if _libc.mount(path, path, None, ctypes.c_ulong(flags), None) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _fork_below_first_process() -> None:
    """Return in a child, and remain as the first process of a namespace: the one that reaps, and ends with the command."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    command = os.fork()
    if command == 0:
        return
    signal.set_wakeup_fd(-1)
    os.closerange(3, 65536)
    while True:
        process, status = os.wait()
        if process == command:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _drop_capabilities() -> None:
    """Give up every capability, and the ways to regain one."""
    for capability in range(_CAPABILITIES):
        with contextlib.suppress(OSError):  # beyond the last one, or without the right to do so
            _prctl(_CAPBSET_DROP, capability)
    header, none, found = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24), ctypes.create_string_buffer(24)
    # A service that has none may not call capset either.
    if _libc.capset(header, none) != 0 and (_libc.capget(header, found) != 0 or found.raw != none):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _prctl(_SET_NO_NEW_PRIVS, 1)


def _confine(rules: list[Any]) -> None:
    """Restrict this process by Landlock to the paths of the rules, no TCP, and signals and sockets of its own."""
    attributes = struct.pack("=QQQ", _ALL_FILES, _ALL_TCP, _ALL_SCOPES)
    size = ctypes.c_size_t
    ruleset = _syscall(_LANDLOCK_CREATE, attributes, size(len(attributes)), ctypes.c_uint32(0))
    for path, rights in rules:
        try:
            descriptor = open_without_links(path)
        except OSError:
            continue  # it does not exist any more, or a link has taken its place
        folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        rule = struct.pack("=Qi", rights if folder else rights & _FILE_RIGHTS, descriptor)
        _syscall(_LANDLOCK_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(descriptor)
    _syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _filter_calls(program: bytes) -> None:
    """Install a filter of system calls."""
    content = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(content))
    if _libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _within(kind: int, value: int) -> tuple[int, int]:
    """Return the soft and hard limit nearest to a value that this process may set."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def _become(argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute a command; like a shell, exit with 127 if there is none of that name, with 126 if it cannot be executed.

    `os.execvpe` would import a module, which the confined process may not be able to read.
    """
    code, reason = 127, "not found"
    for folder in [""] if "/" in argv[0] else environment["PATH"].split(":"):
        try:
            os.execve(f"{folder}/{argv[0]}" if folder else argv[0], argv, environment)  # noqa: S606
        except FileNotFoundError:
            continue
        except OSError as error:
            code, reason = 126, os.strerror(error.errno or 0)
    os.write(2, os.fsencode(f"{argv[0]}: {reason}\n"))
    os._exit(code)


@contextlib.contextmanager
def _exit_on_failure(complains: int) -> Iterator[None]:
    """Write an error of a forked child to a descriptor, and never return into the parent's code."""
    try:
        yield
    except BaseException as error:
        os.write(complains, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(125)


def _remove(folder: str) -> None:
    """Remove a folder that a command had to itself."""
    from shutil import rmtree  # noqa: PLC0415 - its import takes longer than all others together

    rmtree(folder, ignore_errors=True)


def _read_all(descriptor: int) -> str:
    """Read a descriptor to its end, as one line."""
    with open(descriptor, "rb") as file:
        return " ".join(file.read().decode(errors="replace").split())


if __name__ == "__main__":
    main()
