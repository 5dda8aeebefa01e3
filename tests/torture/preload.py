"""Control of `preload.c`: faults of the disk, of descriptors and of the clock in a running process."""

from __future__ import annotations

import mmap
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Self

KINDS = ("write_eio", "write_enospc", "write_short", "sync_eio", "open_emfile", "read_eio", "delay")
"""Kinds of faults, in the order of `preload.c`; each happens with a probability in thousandths."""

_CONTROL = struct.Struct("<8Iq8I")
_CLOCK = 32
_INJECTED = 40


def compiler() -> str | None:
    """Return a C compiler, or None if there is none."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Preload:
    """The compiled library and its control file, in `folder`, for a gateway on `home`."""

    def __init__(self, folder: Path, home: Path, dice: random.Random) -> None:
        self.log = folder / "durable.log"
        self._library = folder / "preload.so"
        self._place = folder / "control"
        self._home = home
        command = [compiler() or "cc", "-shared", "-fPIC", "-O2", "-o", str(self._library)]
        subprocess.run([*command, str(Path(__file__).with_name("preload.c")), "-ldl"], check=True)
        self._place.write_bytes(_CONTROL.pack(*[0] * 16, dice.getrandbits(32)))

    def __enter__(self) -> Self:
        with self._place.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _CONTROL.size)
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()

    def environment(self) -> dict[str, str]:
        """Return the variables of a process that is to have the faults."""
        return {
            "LD_PRELOAD": str(self._library),
            "TORTURE_CONTROL": str(self._place),
            "TORTURE_HOME": str(self._home),
            "TORTURE_LOG": str(self.log),
        }

    def set(self, kind: str, permille: int, *, delay: float = 0.0) -> None:
        """Let one kind of fault happen in so many of a thousand calls; a `delay` takes so many seconds."""
        struct.pack_into("<I", self._memory, 28, round(delay * 1e6))
        struct.pack_into("<I", self._memory, 4 * KINDS.index(kind), permille)

    def clear(self) -> None:
        """Let no fault happen any more; the clock stays where it is."""
        for kind in KINDS:
            self.set(kind, 0)

    def set_clock(self, seconds: int) -> None:
        """Set the wall clock so many seconds off."""
        struct.pack_into("<q", self._memory, _CLOCK, seconds)

    def injected(self) -> dict[str, int]:
        """Count the faults that happened, by kind."""
        return dict(zip(KINDS, struct.unpack_from("<7I", self._memory, _INJECTED), strict=True))
