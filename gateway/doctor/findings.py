"""What a doctor's checks look at, and what they find."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from gateway.config.keys import Config
from gateway.doctor.config_check import CheckedConfig
from gateway.support.errors import sentence_of
from gateway.support.home import Home

Level: TypeAlias = Literal["wrong", "note"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be: `wrong` keeps the gateway from working well, a `note` is worth knowing.
    `mend` is what to do, as a sentence."""

    level: Level = "wrong"
    what: str
    mend: str

    @classmethod
    def of_failure(cls, error: Exception) -> Finding:
        """The finding that a check itself failed."""
        return cls(
            what=f"This could not be looked at: {type(error).__name__}: {sentence_of(error)}",
            mend="Run `exuvia doctor` as the user that runs the gateway; else it is a fault of ours.",
        )


EXAMINE_SECONDS = 60.0
"""How long a gateway that examines itself may take to ask its vendors."""


class Report(msgspec.Struct, frozen=True):
    """The findings of a gateway about itself, by the name of the check. `config` is the file that it reads, if any."""

    config: str | None
    findings: dict[str, tuple[Finding, ...]]


class DoctorContext(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway that is examined, running or not. Nothing of it is changed or locked by looking. `offline` forbids to ask
    anyone outside this machine."""

    home: Home
    checked: CheckedConfig
    environment: Mapping[str, str]
    offline: bool

    @property
    def config(self) -> Config | None:
        """The configuration without its faults; None where the file is no TOML."""
        return self.checked.config

    def process(self) -> int | None:
        """The id of the gateway that runs on this home, None if none does. The lock is not touched: the kernel's own list
        says whether it is held."""
        try:
            process, inode = int(self.home.lock.read_text()), self.home.lock.stat().st_ino
            locks = Path("/proc/locks").read_text()
        except (OSError, ValueError):
            return None
        held = any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines())
        return process if held else None
