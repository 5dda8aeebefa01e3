"""`exuvia service`: the systemd unit that runs this installation, for the system or for one user.

The shipped unit is a system unit; a user's unit is the same without the directives that only the system's manager supports.
Nothing is started here: the commands to do so are printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

from gateway.support.errors import StartRefused

Scope: TypeAlias = Literal["user", "system"]

MARK = "# Exuvia as a service of "
"""The first line of every unit that Exuvia writes."""

_TEMPLATE = Path(__file__).with_name("exuvia.service")

_SYSTEMS_ONLY = re.compile(
    r"(Wants|After|DynamicUser|State\w+|Environment|LoadCredential|CapabilityBoundingSet|AmbientCapabilities|Protect\w+"
    r"|ProcSubset|Private\w+|RemoveIPC)="
)
"""Directives that a user's manager may not set, or that concern system folders."""

_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - where an installation must not be
"""Folders that are invisible to the system's unit."""


def unit(scope: Scope, command: str) -> str:
    """Return the text of the unit; `command` is its ExecStart."""
    lines: list[str] = []
    for line in _TEMPLATE.read_text(encoding="utf-8").splitlines():
        if scope == "user" and line.startswith(MARK):
            lines.append(line.replace("of the system", "of a user", 1))
        elif scope == "user" and _SYSTEMS_ONLY.match(line):
            if lines[-1].startswith("#"):
                lines.pop()  # it explains what is left out
        elif line.startswith("ExecStart="):
            lines.append(f"ExecStart={command}")
        elif line.startswith("WantedBy=") and scope == "user":
            lines.append("WantedBy=default.target")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def start_command(python: Path, home: Path | None) -> str:
    """Return the ExecStart for the installation of this interpreter, with `--home` if `home` is given.

    Raises:
        StartRefused: The installation has no command `exuvia`, such as a checkout.
    """
    script = python.with_name("exuvia")
    if not script.exists():
        raise StartRefused(f"There is no {script}: install Exuvia with pip, and run the command `exuvia` that it installs.")
    words = ["run", *(["--home", str(home)] if home else [])]
    # A $ stands for a variable in every word but the first.
    return " ".join([_quoted(str(script)), *(_quoted(word).replace("$", "$$") for word in words)])


def _quoted(word: str) -> str:
    """Quote a word for a systemd command line, in which % is special."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word}"' if any(character in word for character in " \t'\"\\;") else word


def place(scope: Scope, environment: Mapping[str, str]) -> Path:
    """Return the path of the unit."""
    if scope == "system":
        return Path("/etc/systemd/system/exuvia.service")
    settings = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(settings).expanduser() / "systemd/user/exuvia.service"


def install(
    scope: Scope, python: Path, home: Path | None, environment: Mapping[str, str], out: TextIO, *, only_print: bool
) -> int:
    """Write the unit of this interpreter's installation, or print it; return the exit code.

    Raises:
        StartRefused: The unit could not work.
        OSError: The unit cannot be written.
    """
    if scope == "system":
        _check_for_system(python, home)
    text = unit(scope, start_command(python, home and Path(os.path.abspath(home))))
    if only_print:
        out.write(text)
        return 0
    path = place(scope, environment)
    _check_ours(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    manager = _systemctl(scope)
    out.write(f"Written: {path}\nNow start it:\n  {manager} daemon-reload\n  {manager} enable --now exuvia\n")
    if scope == "user":
        out.write("To keep it running while you are logged out:\n  loginctl enable-linger\n")
    return 0


def uninstall(scope: Scope, environment: Mapping[str, str], out: TextIO) -> int:
    """Remove the unit and return the exit code; the home is kept.

    Raises:
        StartRefused: The file was not written by Exuvia.
    """
    path = place(scope, environment)
    if not path.exists():
        raise StartRefused(f"There is no {path}.")
    _check_ours(path)
    for enabled in [*path.parent.glob("*.wants/exuvia.service"), path]:
        enabled.unlink()
    manager = _systemctl(scope)
    out.write(f"Removed: {path}\nNow stop it, if it is running:\n  {manager} stop exuvia\n  {manager} daemon-reload\n")
    return 0


def _systemctl(scope: Scope) -> str:
    return "systemctl --user" if scope == "user" else "systemctl"


def _check_ours(path: Path) -> None:
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise StartRefused(f"{path} was not written by `exuvia service install`; it is not changed.")


def _check_for_system(python: Path, home: Path | None) -> None:
    if home is not None:
        raise StartRefused("The home of the system's service is /var/lib/exuvia; use --home with --user only.")
    installed = python.parent.resolve()
    if any(installed.is_relative_to(hidden) for hidden in _HIDDEN):
        raise StartRefused(f"The system's service cannot see {installed}; install Exuvia into a folder such as /opt/exuvia.")
