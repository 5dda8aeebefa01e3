"""`exuvia memory` on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gateway.command_line import config_option, end, home_option, json_option, made_home
from gateway.eval_cli import evaluate
from gateway.facts_cli import facts


@click.group()
def memory() -> None:
    """Index and search the notes of the workspace, whether the gateway runs or not."""


memory.add_command(facts)
memory.add_command(evaluate)


@memory.command("index")
@home_option
@config_option
@json_option
def index_memory(home: Path | None, file: Path | None, as_json: bool) -> None:
    """Bring the index up to date. What was interrupted goes on where it was."""
    from gateway import memory_commands  # noqa: PLC0415 - for quick help

    end(lambda: memory_commands.index_notes(made_home(home), file, os.environ, sys.stdout, as_json=as_json))


@memory.command("search")
@click.argument("query")
@home_option
@config_option
@json_option
@click.option("--limit", type=click.IntRange(1, 50), help="How many results [memory.search.max_results].")
@click.option("--explain", is_flag=True, help="Say what each score is made of.")
def search_memory(
    query: str, home: Path | None, file: Path | None, *, as_json: bool, limit: int | None, explain: bool
) -> None:
    """Print what the notes say about QUERY, as the model would find it. Exit code 1 if nothing was found."""
    from gateway import memory_commands  # noqa: PLC0415 - for quick help

    end(
        lambda: memory_commands.search_notes(
            made_home(home), file, os.environ, query, sys.stdout, results=limit, explain=explain, as_json=as_json
        )
    )


@memory.command("status")
@home_option
@config_option
@json_option
def memory_status(home: Path | None, file: Path | None, as_json: bool) -> None:
    """Say what the index holds and how far it is. Exit code 1 if something is still to be indexed or embedded."""
    from gateway import memory_status as command  # noqa: PLC0415 - for quick help
    from gateway.clock import SystemClock  # noqa: PLC0415 - as above

    end(lambda: command.show_status(made_home(home), file, os.environ, sys.stdout, now=SystemClock().now(), as_json=as_json))


@memory.command("audit")
@home_option
@config_option
@json_option
def audit_memory(home: Path | None, file: Path | None, as_json: bool) -> None:
    """Look for notes that say the same, repeat what was recalled or hold secrets, and for those that were never recalled.
    Exit code 1 if something is wrong."""
    from gateway import memory_audit  # noqa: PLC0415 - for quick help
    from gateway.clock import SystemClock  # noqa: PLC0415 - as above

    end(
        lambda: memory_audit.audit_notes(
            made_home(home), file, os.environ, sys.stdout, now=SystemClock().now(), as_json=as_json
        )
    )
