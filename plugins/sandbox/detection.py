"""Finding out which level of the sandbox works on this machine, by trying."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path

from plugins.sandbox.landlock import LEAST_ABI, landlock_abi
from plugins.sandbox.policy import Level, SandboxFailed, SandboxPolicy, SandboxStatus
from plugins.sandbox.process import start
from plugins.sandbox.seccomp import supported

_SECONDS = 30.0

_KERNEL_SETTINGS = {
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "AppArmor does not let bubblewrap create namespaces",
        "Allow it: `apt install apparmor-profiles`, `ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict"
        " /etc/apparmor.d/` and `systemctl reload apparmor`, as root.",
    ),
    "kernel/unprivileged_userns_clone": (
        "0",
        "only root may create user namespaces here",
        "Allow it: `sysctl -w kernel.unprivileged_userns_clone=1`, and the same line in /etc/sysctl.d.",
    ),
    "user/max_user_namespaces": (
        "0",
        "user namespaces are switched off here",
        "Switch them on: `sysctl -w user.max_user_namespaces=15000`, and the same line in /etc/sysctl.d.",
    ),
}
"""Settings of the kernel that stop bubblewrap: the value that does, the reason, and how to change it."""

_INSTALL = "Install bubblewrap: `apt install bubblewrap`, `dnf install bubblewrap` or `pacman -S bubblewrap`."
_CONFINED = (
    "Let the service or the container create namespaces and mount file systems: docs/sandbox.md says how, for systemd and"
    " Docker."
)


async def detect() -> SandboxStatus:
    """Run a command at each level, the best one first, and return the status."""
    failure = await _failure("full")
    if not failure:
        return SandboxStatus(level="full")
    reason, fix = _explain(failure)
    lacks = _lacks_for_partial() or await _failure("partial")
    if not lacks:
        return SandboxStatus(level="partial", reason=f"{reason}.", fix=fix)
    return SandboxStatus(level="none", reason=f"{reason}, and Landlock cannot confine commands: {lacks}.", fix=fix)


async def _failure(level: Level) -> str:
    """Return why a level does not work; an empty string if it does."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="exuvia-"))
    try:
        async with asyncio.timeout(_SECONDS):
            async with await start(["true"], SandboxPolicy(workspace=folder, protected=()), level=level) as process:
                ended = await process.wait()
        return "" if ended.exit_code == 0 else f"a command failed with exit code {ended.exit_code}"
    except SandboxFailed as error:
        return str(error)
    except TimeoutError:
        return f"a command did not end within {_SECONDS:.0f} s"
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _explain(failure: str) -> tuple[str, str]:
    """Return why bubblewrap does not work, and what to do."""
    if not supported():
        return "This processor's system calls are not known to the filter", "Run the gateway on x86-64 or arm64."
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed", _INSTALL
    if re.search("Unknown option|--(ro-)?bind-fd|--size", failure):
        return f"bubblewrap is too old ({failure})", "Install version 0.8 or newer of bubblewrap, with its security updates."
    if os.geteuid() != 0:
        for name, (value, reason, fix) in _KERNEL_SETTINGS.items():
            if _setting(name) == value:
                return f"{reason[0].upper()}{reason[1:]} ({failure})", fix
    return f"bubblewrap fails ({failure.rstrip('.')})", _CONFINED


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def _lacks_for_partial() -> str:
    """Return what this kernel lacks for the level `partial`; an empty string if nothing."""
    if not supported():
        return "the processor is not supported"
    abi = landlock_abi()
    if abi < LEAST_ABI:
        return f"its version here is {abi}, and {LEAST_ABI} is needed (Linux 6.12)"
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return "the kernel does not list the children of processes"
    return ""
