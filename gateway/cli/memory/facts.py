"""The commands of `exuvia memory facts`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import click

from gateway.cli.options import config_option, end, home_option, json_option, made_home


@click.group()
def facts() -> None:
    """List, export and import facts."""


@facts.command("list")
@home_option
@config_option
@json_option
@click.option("--layer", type=click.Choice(["daily", "longterm"]), help="Only the daily log, or only long-term facts.")
def list_facts(home: Path | None, file: Path | None, layer: Literal["daily", "longterm"] | None, *, as_json: bool) -> None:
    """Print the facts with their current scores, oldest first; with or without a running gateway."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.list_facts(made_home(home), file, os.environ, sys.stdout, layer=layer, as_json=as_json))


@facts.command("export")
@click.argument("document", type=click.Path(path_type=Path, dir_okay=False), required=False)
@home_option
@config_option
def export_facts(document: Path | None, home: Path | None, file: Path | None) -> None:
    """Write all facts as JSON to a new DOCUMENT, or print them; with or without a running gateway."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.export_facts(made_home(home), file, os.environ, document, sys.stdout))


@facts.command("import")
@click.argument("document", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@config_option
def import_facts(document: Path, home: Path | None, file: Path | None) -> None:
    """Import the facts of DOCUMENT; the gateway must be stopped.

    Each refused entry is printed; exit code 1 if there is one.
    """
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.import_facts(made_home(home), file, os.environ, document, sys.stdout))


@facts.command("dedupe")
@home_option
@config_option
@json_option
def dedupe_facts(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Remove duplicate facts; the gateway must be stopped."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.dedupe_facts(made_home(home), file, os.environ, sys.stdout, as_json=as_json))
