"""A machine of its own in which systemd is PID 1 and this project is installed, to run the shipped units for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]

PACKAGED = (
    "exuvia.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "config.example.toml",
    "gateway",
    "plugins",
    "sessions",
    "systemd",
)
"""What a wheel of the project is made of."""

NAMESPACES = {"mnt": "mount", "pid": "pid", "uts": "uts", "ipc": "ipc", "cgroup": "cgroup"}
"""Those of its own that the machine has, as the kernel names them and as `nsenter` does."""

GROUP = """set -e
mount -t cgroup2 cgroup2 /mnt
group="/mnt$(sed -n 's/^0:://p' /proc/self/cgroup)/exuvia-test-$1"
"""
"""Names a control group below ours, in a mount namespace where /mnt may be mounted over."""

PROBE = GROUP + 'mkdir "$group"; rmdir "$group"; unshare --fork --pid --cgroup --uts --ipc true'

REMOVE = (
    GROUP
    + """echo 1 >"$group/cgroup.kill"
while grep -q "populated 1" "$group/cgroup.events"; do sleep 0.05; done
find "$group" -depth -type d -exec rmdir {} +"""
)


def impossible() -> str:
    """Why no such machine can be booted here; empty if one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "systemd can be booted by root on Linux only"
    for program in ("/lib/systemd/systemd", "unshare", "nsenter", "pivot_root"):
        if shutil.which(program) is None:
            return f"{program} is missing; `apt-get install systemd util-linux` brings it"
    if (done := _apart(PROBE, os.getpid())).returncode:
        return f"this machine allows no namespaces with control groups of their own: {done.stderr.strip()}"
    return ""


def install(folder: Path, more: Callable[[Path], None]) -> None:
    """Lay an installation into `folder`, to be seen as /opt/exuvia: a virtual environment with a wheel of this project, and
    what `more` lays beside it, which takes the packages it depends on from /opt/dependencies."""
    source = folder.with_name("source")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    wheels = folder.with_name("wheels")
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source)
    python = f"python3.{sys.version_info.minor}"
    packages = folder / "lib" / python / "site-packages"
    _run(*pip, "install", "--no-compile", "--no-deps", "--no-index", "--target", packages, *wheels.glob("*.whl"))
    more(packages)
    (packages / "dependencies.pth").write_text("/opt/dependencies\n")
    (folder / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(f"/opt/python/bin/{python}")
    command = folder / "bin/exuvia"
    command.write_text("#!/opt/exuvia/bin/python\nimport sys\nfrom exuvia import main\nsys.exit(main())\n")
    command.chmod(0o755)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Machine:
    """A machine that runs. `root` is its root as seen from here."""

    def __init__(self, process: int) -> None:
        # Held open: a process id might be given to another process, and what is done to `root` must not be done to its root.
        self._namespaces = {name: os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY) for name in NAMESPACES}
        self._root = os.open(f"/proc/{process}/root", os.O_PATH | os.O_DIRECTORY)
        self.root = Path(f"/proc/self/fd/{self._root}")

    def close(self) -> None:
        """Let go of the machine."""
        for descriptor in (*self._namespaces.values(), self._root):
            os.close(descriptor)

    def run(self, *command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a program inside, as root and unconfined."""
        entered = [f"--{NAMESPACES[name]}=/proc/self/fd/{held}" for name, held in self._namespaces.items()]
        return subprocess.run(
            ["nsenter", *entered, *command],
            pass_fds=self._namespaces.values(),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def systemctl(self, *words: str) -> str:
        """What `systemctl` prints; it must succeed."""
        done = self.run("systemctl", *words)
        assert done.returncode == 0, f"{done.stderr}\n{self.journal()}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--value", "--property", name, unit).strip()

    def journal(self, *words: str) -> str:
        """What the service said, and systemd of it."""
        return self.run("journalctl", "--no-pager", "--output", "cat", "--unit", "exuvia", *words).stdout


@contextmanager
def booted(folder: Path, more: Callable[[Path], None]) -> Iterator[Machine]:
    """Boot a machine with this project installed in it; `folder` takes what that needs, and `more` lays further packages
    into the folder that it is given."""
    install(folder / "installed", more)
    (folder / "root").mkdir()
    words = [folder / "root", sys.base_prefix, sysconfig.get_path("platlib"), folder / "installed"]
    script = ["unshare", "--mount", "--propagation", "private", "sh", "-e", str(Path(__file__).with_name("boot.sh"))]
    with (folder / "boot.log").open("w") as log:
        booting = subprocess.Popen([*script, *map(str, words)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        machine = _started(booting, folder / "boot.log")
        try:
            yield machine
        finally:
            machine.close()
    finally:
        booting.kill()  # and with it, by --kill-child, everything inside
        booting.wait()
        _apart(REMOVE, booting.pid)


def _started(booting: subprocess.Popen[bytes], log: Path) -> Machine:
    """The machine once systemd has started all that it starts by itself."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and booting.poll() is None:
        for child in Path(f"/proc/{booting.pid}/task/{booting.pid}/children").read_text().split():
            if not _is_booted(int(child)):
                continue
            machine = Machine(int(child))
            if machine.run("systemctl", "is-system-running").stdout == "running\n":
                return machine
            machine.close()
        time.sleep(0.05)
    raise AssertionError(f"systemd did not boot: {log.read_text()}")


def _is_booted(process: int) -> bool:
    """Whether a process is systemd on a root of its own. Before, it is one of boot.sh and may see the systemd around us."""
    try:
        name, root = Path(f"/proc/{process}/comm").read_text(), Path(f"/proc/{process}/root")
        return name == "systemd\n" and not root.samefile("/") and (root / "opt/exuvia/pyvenv.cfg").exists()
    except OSError:
        return False


def _apart(script: str, process: int) -> subprocess.CompletedProcess[str]:
    """Run a script whose mounts nobody else sees; $1 is the process."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(process)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
