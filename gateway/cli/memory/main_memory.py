"""`exuvia memory` on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gateway.cli.memory.facts import facts
from gateway.cli.options import config_option, end, home_option, json_option, made_home


@click.command("eval")
@click.argument("questions", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@config_option
@json_option
@click.option("--k", "cutoffs", default="5,10", show_default=True, help="After how many results recall is told.")
@click.option("--all", "every", is_flag=True, help="Compare all ways to rank, not only the configured one.")
def evaluate(questions: Path, home: Path | None, file: Path | None, cutoffs: str, *, every: bool, as_json: bool) -> None:
    """Say how well the memory answers the questions of FILE, JSON lines or TOML, each with the notes that answer it."""
    from gateway.cli.memory import evaluation  # noqa: PLC0415 - for quick help

    def run() -> int:
        depths = sorted({int(each) for each in cutoffs.split(",") if each.strip().isdecimal()})
        if not depths or len(depths) != len(cutoffs.split(",")) or not 1 <= depths[0] <= depths[-1] <= evaluation.MOST:
            raise click.ClickException(f"--k takes numbers from 1 to {evaluation.MOST}, as in --k 5,10.")
        return evaluation.evaluate(
            made_home(home), file, os.environ, questions, sys.stdout, cutoffs=depths, every=every, as_json=as_json
        )

    end(run)


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
    from gateway.cli.memory import memory_commands  # noqa: PLC0415 - for quick help

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
    from gateway.cli.memory import memory_commands  # noqa: PLC0415 - for quick help

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
    from gateway.cli.memory import memory_status as command  # noqa: PLC0415 - for quick help
    from gateway.support.clock import SystemClock  # noqa: PLC0415 - as above

    end(lambda: command.show_status(made_home(home), file, os.environ, sys.stdout, now=SystemClock().now(), as_json=as_json))


@memory.command("audit")
@home_option
@config_option
@json_option
def audit_memory(home: Path | None, file: Path | None, as_json: bool) -> None:
    """Look for notes that say the same, repeat what was recalled or hold secrets, and for those that were never recalled.
    Exit code 1 if something is wrong."""
    from gateway.cli.memory import audit  # noqa: PLC0415 - for quick help
    from gateway.support.clock import SystemClock  # noqa: PLC0415 - as above

    end(lambda: audit.audit_notes(made_home(home), file, os.environ, sys.stdout, now=SystemClock().now(), as_json=as_json))
