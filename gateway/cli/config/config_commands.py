"""`exuvia config init|check|show`. Each function prints and returns an exit code: 0 well, 1 something wrong was found."""

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


def init_config(
    path: Path, wishes: Sequence[tuple[str, str]], environment: Mapping[str, str], out: TextIO, *, force: bool
) -> int:
    """Write a commented configuration in which the wished keys are set. ConfigRefused or OSError if it cannot be."""
    warnings = write(path, initial(dict(wishes)), environment, force=force)
    out.writelines(_warning(warning) for warning in warnings)
    out.write(f"{path} is written; a gateway that runs with it follows when you save it.\n")
    return WELL


def check_config(path: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    """Print each fault of the file and of the variables, in one sentence each, and what should not stay as it is."""
    checked = check(path, environment)
    if as_json:
        print_json({"file": str(path), "faults": checked.faults, "warnings": checked.warnings}, out)
    else:
        out.writelines(one_line(fault, 600) + "\n" for fault in checked.faults)
        out.writelines(_warning(warning) for warning in checked.warnings)
        count = len(checked.faults)
        there = "" if path.exists() else " does not exist, which means the defaults, and they"
        out.write(f"{path}{there} can be used.\n" if not count else f"{count} {'fault' if count == 1 else 'faults'}.\n")
    return WRONG if checked.faults else WELL


def show_config(path: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool, sources: bool) -> int:
    """Print every value that a start would use, secrets as references. ConfigRefused if it would refuse to start."""
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
