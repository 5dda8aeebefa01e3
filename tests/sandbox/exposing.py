"""Start a program as an ordinary user who cannot read the folders that Python and the project are in.

In a mount namespace of its own, both are bound to a folder that everybody can read; then the rights of root are given up.
Of the project what it contains is bound, since nobody else may enter the folder itself that `mktemp -d` makes for a clone.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEW_MOUNTS, PRIVATE, BIND, REC = 0x20000, 1 << 18, 4096, 16384


def main() -> None:
    user, folder, module, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    check(libc.unshare(NEW_MOUNTS))
    check(libc.mount(None, b"/", None, ctypes.c_ulong(REC | PRIVATE), None))
    Path(folder, "project").mkdir(mode=0o755)
    shown = {"python": Path(sys.base_prefix), "packages": Path(sysconfig.get_path("purelib"))}
    shown |= {f"project/{path.name}": path for path in ROOT.iterdir() if not path.name.startswith(".")}
    for name, path in shown.items():
        target = Path(folder, name)
        target.mkdir() if path.is_dir() else target.touch()
        check(libc.mount(bytes(path), bytes(target), None, ctypes.c_ulong(BIND), None))
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    python = Path(folder, "python/bin", Path(os.path.realpath(sys.executable)).name)
    environment = {"PYTHONPATH": f"{folder}/project:{folder}/packages", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "SECRET": "in the environment"}
    os.chdir(f"{folder}/project")
    os.execve(python, [str(python), "-s", "-m", module, *arguments], environment)


if __name__ == "__main__":
    main()
