"""Findings of the doctor, and the context of a check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from gateway.config.keys import Config
from gateway.config.rendering import CheckedConfig
from gateway.support.errors import sentence_of
from gateway.support.home import Home

Level: TypeAlias = Literal["wrong", "note"]


class Finding(msgspec.Struct, frozen=True):
    """A problem (`wrong`) or a remark (`note`); `mend` is a sentence that says what to do."""

    what: str
    mend: str
    level: Level = "wrong"

    @classmethod
    def of_failure(cls, error: Exception) -> Finding:
        """Return the finding that a check itself failed."""
        return cls(
            f"The check failed: {type(error).__name__}: {sentence_of(error)}",
            "Run `exuvia doctor` as the user that runs the gateway; if it still fails, report a bug.",
        )


EXAMINE_SECONDS = 60.0
"""The time limit in seconds for a gateway that examines itself."""


class Report(msgspec.Struct, frozen=True):
    """A gateway's findings about itself, by check. `config` is the file that it reads, if any."""

    config: str | None
    findings: dict[str, tuple[Finding, ...]]


class DoctorContext(msgspec.Struct, frozen=True, kw_only=True):
    """The home and configuration under examination, of a running gateway or not.

    Checks change and lock nothing. With `offline` they make no request to another machine.
    """

    home: Home
    checked: CheckedConfig
    environment: Mapping[str, str]
    offline: bool

    @property
    def config(self) -> Config | None:
        """The configuration without its faults; None if the file is no TOML."""
        return self.checked.config

    def process(self) -> int | None:
        """Return the process id of the gateway that runs on this home, None if there is none.

        The lock is not touched: `/proc/locks` says whether it is held.
        """
        try:
            process, inode = int(self.home.lock.read_text()), self.home.lock.stat().st_ino
            locks = Path("/proc/locks").read_text()
        except (OSError, ValueError):
            return None
        held = any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines())
        return process if held else None
