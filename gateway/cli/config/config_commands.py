"""`exuvia config init|check|show`. Each function prints and returns an exit code: 0 success, 1 a fault was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from gateway.cli.config.writing import initial, write
from gateway.cli.sessions.session_commands import WELL, WRONG, print_json
from gateway.config.rendering import as_toml, shown, sources_of
from gateway.doctor.config_check import check
from gateway.support.errors import ConfigRefused
from gateway.support.printable import one_line
from gateway.support.session_status import count_of


def init_config(
    path: Path, wishes: Sequence[tuple[str, str]], environment: Mapping[str, str], out: TextIO, *, force: bool
) -> int:
    """Write a commented configuration with the given keys set. Raises ConfigRefused or OSError."""
    warnings = write(path, initial(dict(wishes)), environment, force=force)
    out.writelines(_warning(warning) for warning in warnings)
    out.write(f"{path} was written; a running gateway applies changes when you save it.\n")
    return WELL


def check_config(path: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    """Print each fault and warning of the file and of the environment."""
    checked = check(path, environment)
    if as_json:
        print_json({"file": str(path), "faults": checked.faults, "warnings": checked.warnings}, out)
    else:
        out.writelines(one_line(fault, 600) + "\n" for fault in checked.faults)
        out.writelines(_warning(warning) for warning in checked.warnings)
        count = len(checked.faults)
        state = "is valid" if path.exists() else "does not exist; the defaults are used"
        out.write(f"{count_of(count, 'fault')}.\n" if count else f"{path} {state}.\n")
    return WRONG if checked.faults else WELL


def show_config(path: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool, sources: bool) -> int:
    """Print every value in force, secrets as references. Raises ConfigRefused if the configuration is invalid."""
    checked = check(path, environment)
    if checked.faults or checked.config is None:
        raise ConfigRefused(" ".join(checked.faults))
    tree = shown(checked.config, checked.settings, checked.plugins)
    origins = sources_of(tree, checked.config.sources) if sources else None
    if as_json:
        print_json(tree if origins is None else {"values": tree, "sources": origins}, out)
    else:
        out.write(as_toml(tree, origins))
    return WELL


def _warning(sentence: str) -> str:
    return f"(warning) {one_line(sentence, 600)}\n"
