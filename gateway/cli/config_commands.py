"""`exuvia config init|check|show`. Each command prints and returns an exit code: 0 success, 1 a fault was found.

A new file is the shipped text with the user's values.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from gateway.cli.options import PROBLEM, SUCCESS, print_json
from gateway.config.documented_keys import EXAMPLE
from gateway.config.keys import Sections
from gateway.config.rendering import as_toml, shown, sources_of
from gateway.config.sources import split_key
from gateway.config.validation import typed_as
from gateway.doctor.config_check import check
from gateway.support.errors import ConfigRefused
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from plugins.host.loading import load_plugins
from sessions.files.fsync import sync_folder, write_new


def init_config(
    path: Path, wishes: Sequence[tuple[str, str]], environment: Mapping[str, str], out: TextIO, *, force: bool
) -> int:
    """Write a commented configuration with the given keys set. Raises ConfigRefused or OSError."""
    warnings = write(path, initial(dict(wishes)), environment, force=force)
    out.writelines(_warning(warning) for warning in warnings)
    out.write(f"{path} was written; a running gateway applies changes when you save it.\n")
    return SUCCESS


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
    return PROBLEM if checked.faults else SUCCESS


def show_config(path: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool, sources: bool) -> int:
    """Print every value in force, secrets as references. Raises ConfigRefused if the configuration is invalid."""
    checked = check(path, environment)
    if checked.faults or checked.config is None:
        raise ConfigRefused(" ".join(checked.faults))
    tree = shown(checked.config, checked.settings, checked.plugins, checked.channels)
    origins = sources_of(tree, checked.config.sources) if sources else None
    if as_json:
        print_json(tree if origins is None else {"values": tree, "sources": origins}, out)
    else:
        out.write(as_toml(tree, origins))
    return SUCCESS


def _warning(sentence: str) -> str:
    return f"(warning) {one_line(sentence, 600)}\n"


# --- writing a new file -----------------------------------------------------------------------------------------------


def initial(wishes: Mapping[str, str]) -> str:
    """Return the shipped text with these keys set; values are TOML or plain text.

    Raises:
        ConfigRefused: A key cannot be set this way.
    """
    text = EXAMPLE.read_text()
    if not wishes:
        return text
    from gateway.config.toml_editing import edited  # noqa: PLC0415 - tomlkit, which other commands do not need

    values = {key: _value(key, value) for key, value in wishes.items()}
    for key, value in values.items():
        if len(split_key(key)) < 2 or isinstance(value, dict):
            raise ConfigRefused(f"{key!r} cannot be set with --set; write it into the file.")
    return edited(text, values)


def write(path: Path, text: str, environment: Mapping[str, str], *, force: bool) -> list[str]:
    """Write a configuration file (mode 0600) atomically and return its warnings.

    Raises:
        ConfigRefused: The configuration is invalid; the message has every fault.
        FileExistsError: The file exists and `force` is not set.
    """
    if not force and path.exists():
        raise FileExistsError(f"{path} exists; --force overwrites it.")
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(new, [text.encode()])
    try:
        outside = {name: value for name, value in environment.items() if not name.startswith("EXUVIA_")}
        checked = check(new, outside)
        if checked.faults:
            raise ConfigRefused(" ".join(checked.faults).replace(str(new), str(path)))
        if force:
            new.replace(path)
        else:
            os.link(new, path)  # unlike a rename, this fails if the file exists by now
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)
    return [warning.replace(str(new), str(path)) for warning in checked.warnings]


def _value(key: str, text: str) -> Any:
    section, *names = key.split(".")
    if section == "providers" and len(names) > 1:
        kind = load_plugins(()).chat_providers().get(names[0])
        return text if kind is None else typed_as(text, kind.Settings, names[1:])
    return typed_as(text, Sections, [section, *names])
