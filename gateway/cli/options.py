"""Options, exit codes and JSON output shared by the commands."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click

if TYPE_CHECKING:
    from gateway.config.keys import Config
    from gateway.config.settings import Settings
    from gateway.support.home import Home

SUCCESS, PROBLEM = 0, 1
"""Exit codes; 1 means that the command found a problem, or nothing. Errors end with 2."""

home_option = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), help="The gateway's folder [$EXUVIA_HOME or ~/.exuvia]."
)
person_option = click.option("--person", metavar="NAME", help="The person whose SESSION it is [the owner].")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The configuration [HOME/config.toml]."
)


agent_option = click.option("--agent", default="main", metavar="NAME", help="The agent whose it is [main].")


def home_at(path: Path | None) -> Home:
    """Return the given home, else the environment's, else the default."""
    from gateway.support.home import Home  # noqa: PLC0415 - for quick help

    return Home.resolve(path, os.environ)


class Invocation(NamedTuple):
    """The inputs and the output of a command: the home, the configuration file, the environment, and where to print."""

    home: Home
    file: Path
    environment: Mapping[str, str]
    out: TextIO
    as_json: bool = False
    agent: str = "main"

    @property
    def agent_home(self) -> Home:
        """The paths of the agent's own files."""
        return self.home.of_agent(self.agent)

    def settings(self) -> Settings:
        """Load the configuration and return the settings of the agent; raise ConfigRefused if it is invalid, ClickException
        if there is no such agent."""
        from gateway.config.settings import Settings, agent_settings  # noqa: PLC0415 - for quick help

        config = self.config()
        if self.agent not in ("main", *config.agents):
            known = ", ".join(("main", *config.agents))
            raise click.ClickException(f"There is no agent {self.agent[:64]!r}; the agents are {known[:200]}.")
        return agent_settings(Settings(config), self.agent)

    def config(self) -> Config:
        """Load the configuration; raise ConfigRefused if it is invalid."""
        from gateway.config.keys import load_config  # noqa: PLC0415 - for quick help

        return load_config(self.file, environment=self.environment, overrides={})


def invocation(home: Home, file: Path | None, *, as_json: bool = False, agent: str = "main") -> Invocation:
    """Return the invocation of a command in this process. The default file is the home's `config.toml`."""
    file = file or home.config
    return Invocation(_with_database(home, file), file, os.environ, sys.stdout, as_json, agent)


def existing_home(path: Path | None) -> Home:
    """Return the home; raise ClickException if there is none."""
    home = home_at(path)
    if not home.root.is_dir():
        raise click.ClickException(f"There is no home at {home.root}; `exuvia run` creates one.")
    return _with_database(home, home.config)


def _with_database(home: Home, file: Path) -> Home:
    """Return the home with the database that the configuration names. The file is loaded only if it has a table `[store]`.
    Raises ClickException if it is invalid."""
    try:
        mentioned = re.search(rb"(?m)^[ \t]*(\[store\]|store[ \t]*[.=])", file.read_bytes()) is not None
    except OSError:
        mentioned = False
    if not mentioned and not any(name.startswith("EXUVIA__STORE__") for name in os.environ):
        return home
    import msgspec  # noqa: PLC0415 - for quick help

    from gateway.config.keys import load_config  # noqa: PLC0415 - as above
    from gateway.support.errors import ConfigRefused  # noqa: PLC0415 - as above

    try:
        config = load_config(file, environment=os.environ, overrides={})
    except ConfigRefused as error:
        raise click.ClickException(f"The store is not known: {error}") from error
    return msgspec.structs.replace(home, database=config.store.database)


def end(command: Callable[[], int]) -> None:
    """Run a command and exit with its code; an expected error is printed as one sentence, without a traceback."""
    from gateway.support.errors import GatewayError, sentence_of  # noqa: PLC0415 - for quick help
    from sessions.events.errors import JournalDamaged, SessionsError  # noqa: PLC0415

    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output closed it; nothing may be flushed there at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except click.ClickException as error:
        click.echo(f"exuvia: {error.format_message()}", err=True)
        code = 2
    except (GatewayError, SessionsError, OSError) as error:
        click.echo(f"exuvia: {sentence_of(error)}", err=True)
        code = 1 if isinstance(error, JournalDamaged) else 2
    sys.exit(code)


def print_json(value: object, out: TextIO) -> None:
    """Print a value as indented JSON."""
    import msgspec  # noqa: PLC0415 - for quick help

    from gateway.support.printable import escaped  # noqa: PLC0415 - as above

    out.write(escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n")
