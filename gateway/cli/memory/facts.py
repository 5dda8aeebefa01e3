"""`exuvia memory facts` on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import click

from gateway.cli.options import config_option, end, home_option, json_option, made_home


@click.group()
def facts() -> None:
    """List, export and import the small facts beside the notes."""


@facts.command("list")
@home_option
@config_option
@json_option
@click.option("--layer", type=click.Choice(["daily", "longterm"]), help="Only the daily log, or only what stays.")
def list_facts(home: Path | None, file: Path | None, layer: Literal["daily", "longterm"] | None, *, as_json: bool) -> None:
    """Print the facts, oldest first, with what each is worth now; whether the gateway runs or not."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.list_facts(made_home(home), file, os.environ, sys.stdout, layer=layer, as_json=as_json))


@facts.command("export")
@click.argument("document", type=click.Path(path_type=Path, dir_okay=False), required=False)
@home_option
@config_option
def export_facts(document: Path | None, home: Path | None, file: Path | None) -> None:
    """Write all facts as JSON to a new DOCUMENT, or print them; whether the gateway runs or not."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.export_facts(made_home(home), file, os.environ, document, sys.stdout))


@facts.command("import")
@click.argument("document", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@config_option
def import_facts(document: Path, home: Path | None, file: Path | None) -> None:
    """Take in the facts of DOCUMENT, while no gateway runs. Each entry that is refused is named; exit code 1 if one is."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.import_facts(made_home(home), file, os.environ, document, sys.stdout))


@facts.command("dedupe")
@home_option
@config_option
@json_option
def dedupe_facts(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Drop the facts that others say as well, while no gateway runs."""
    from gateway.cli.memory import facts_commands  # noqa: PLC0415 - for quick help

    end(lambda: facts_commands.dedupe_facts(made_home(home), file, os.environ, sys.stdout, as_json=as_json))
