"""`exuvia plugins` on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gateway.command_line import config_option, end, home_at, home_option, json_option

KINDS = ("provider", "embedding", "tool", "command", "policy")
"""What `new` writes: those of `plugins.templates.packages`, which is not imported for quick help."""


@click.group()
def plugins() -> None:
    """Look at the plugins that are installed, try one, begin one."""


@plugins.command("list")
@home_option
@config_option
@json_option
def list_plugins(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Print which plugins are installed, which of them are allowed, and what those provide. One that is not allowed is not
    imported. Exit code 1 if one that is allowed cannot be used."""
    from gateway import plugins_commands as commands  # noqa: PLC0415 - for quick help

    end(lambda: commands.list_plugins(file or home_at(home).config, os.environ, sys.stdout, as_json=as_json))


@plugins.command("check")
@click.argument("name")
@home_option
@config_option
@json_option
def check_plugin(name: str, home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Import the plugin NAME, installed or a folder, allowed or not, as the gateway would, and say what it provides, what it
    may be told in [plugins.NAME], and what is wrong with it. Exit code 1 if something is."""
    from gateway import plugins_commands as commands  # noqa: PLC0415 - for quick help

    end(lambda: commands.check_plugin(name, file or home_at(home).config, os.environ, sys.stdout, as_json=as_json))


@plugins.command("new")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="The folder to make [exuvia-NAME].")
def new_plugin(kind: str, name: str, into: Path | None) -> None:
    """Write a package that provides NAME, a chat provider, an embedding provider, a tool, a command or a policy: complete,
    with tests that pass, for you to change."""
    from gateway import plugins_commands as commands  # noqa: PLC0415 - for quick help

    end(lambda: commands.new_plugin(kind, name, into, sys.stdout))
