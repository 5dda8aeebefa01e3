"""What the commands of the command line share: their options, the home they mean, and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gateway.support.home import Home

home_option = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), help="The gateway's folder [$EXUVIA_HOME or ~/.exuvia]."
)
person_option = click.option("--person", metavar="NAME", help="Whose SESSION, if it is a name [the owner's].")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The configuration [HOME/config.toml]."
)


def home_at(path: Path | None) -> Home:
    """The home that is named, else the environment's, else the usual one."""
    from gateway.support.home import Home  # noqa: PLC0415 - for quick help

    return Home.resolve(path, os.environ)


def made_home(path: Path | None) -> Home:
    """A home that exists."""
    home = home_at(path)
    if not home.root.is_dir():
        raise click.ClickException(f"There is no home at {home.root}; `exuvia run` makes one.")
    return home


def journals_folder(path: Path | None) -> Path:
    """The folder of the journals, of a home that exists."""
    return made_home(path).sessions


def end(command: Callable[[], int]) -> None:
    """Run a command and end with its exit code; what it could not do is one sentence, never a traceback."""
    from gateway.support.errors import GatewayError, sentence_of  # noqa: PLC0415 - for quick help
    from sessions.events.errors import JournalDamaged, SessionsError  # noqa: PLC0415

    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough of it; nothing may be flushed there at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except click.ClickException as error:
        click.echo(f"exuvia: {error.format_message()}", err=True)
        code = 2
    except (GatewayError, SessionsError, OSError) as error:
        click.echo(f"exuvia: {sentence_of(error)}", err=True)
        code = 1 if isinstance(error, JournalDamaged) else 2
    sys.exit(code)
