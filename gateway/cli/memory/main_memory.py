"""The commands of `exuvia memory`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from gateway.cli.options import agent_option, config_option, end, existing_home, home_option, invocation, json_option


@click.group()
def memory() -> None:
    """Index and search notes and sessions. The gateway may be running."""


@memory.command("index")
@agent_option
@home_option
@config_option
@json_option
def index_memory(home: Path | None, file: Path | None, *, as_json: bool, agent: str) -> None:
    """Update the index. An interrupted run is continued."""
    from gateway.cli.memory import memory_commands

    end(lambda: memory_commands.index_notes(invocation(existing_home(home), file, as_json=as_json, agent=agent)))


@memory.command("search")
@click.argument("query")
@agent_option
@home_option
@config_option
@json_option
@click.option("--limit", type=click.IntRange(1, 50), help="The number of results [memory.search.max_results].")
@click.option("--explain", is_flag=True, help="Show the parts of each score.")
def search_memory(
    query: str, home: Path | None, file: Path | None, *, as_json: bool, limit: int | None, explain: bool, agent: str
) -> None:
    """Search notes and sessions for QUERY, as the model does. Exit code 1 if nothing was found."""
    from gateway.cli.memory import memory_commands

    def search() -> int:
        call = invocation(existing_home(home), file, as_json=as_json, agent=agent)
        return memory_commands.search_notes(call, query, results=limit, explain=explain)

    end(search)


@memory.command("show")
@click.argument("place")
@agent_option
@home_option
@config_option
def show_memory(place: str, home: Path | None, file: Path | None, *, agent: str) -> None:
    """Show the text at PLACE, a citation of `memory search`. The text is lines of a note, or messages of a session."""
    from gateway.cli.memory import memory_commands

    end(lambda: memory_commands.show_place(invocation(existing_home(home), file, agent=agent), place))


@memory.command("status")
@agent_option
@home_option
@config_option
@json_option
def memory_status(home: Path | None, file: Path | None, *, as_json: bool, agent: str) -> None:
    """Show the contents and progress of the index. Exit code 1 if something is still to be indexed or embedded."""
    from gateway.cli.memory import memory_commands
    from gateway.support.clock import SystemClock

    end(
        lambda: memory_commands.show_status(
            invocation(existing_home(home), file, as_json=as_json, agent=agent), SystemClock().now()
        )
    )


@memory.command("audit")
@agent_option
@home_option
@config_option
@json_option
def audit_memory(home: Path | None, file: Path | None, *, as_json: bool, agent: str) -> None:
    """Find problems of the notes, and notes never recalled. A problem is a duplicate, a repetition of recalled text, or
    a secret. Exit code 1 if there is one."""
    from gateway.cli.memory import audit
    from gateway.support.clock import SystemClock

    end(lambda: audit.audit_notes(invocation(existing_home(home), file, as_json=as_json, agent=agent), SystemClock().now()))


@memory.command("eval")
@click.argument("questions", metavar="FILE...", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@agent_option
@home_option
@config_option
@json_option
@click.option("--sets", "one_table", is_flag=True, help="Show all files in one table.")
@click.option("--k", "cutoffs", default="5,10", show_default=True, help="Cutoffs for recall.")
@click.option("--all", "every", is_flag=True, help="Compare all fusion methods, not only the configured one.")
def evaluate(
    questions: tuple[Path, ...],
    home: Path | None,
    file: Path | None,
    cutoffs: str,
    *,
    one_table: bool,
    every: bool,
    as_json: bool,
    agent: str,
) -> None:
    """Measure how well the memory answers questions. Each FILE has questions with the notes that answer them, as JSON lines
    or TOML, or as JSON with notes or conversations of its own. `--sets A.json B.json` shows them side by side.
    """
    from gateway.cli.memory import evaluation

    def run() -> int:
        depths = sorted({int(each) for each in cutoffs.split(",") if each.strip().isdecimal()})
        if not depths or len(depths) != len(cutoffs.split(",")) or not 1 <= depths[0] <= depths[-1] <= evaluation.MOST:
            raise click.ClickException(f"--k takes numbers from 1 to {evaluation.MOST}, as in --k 5,10.")
        if not questions:
            raise click.UsageError("Missing argument 'FILE...'.")
        call = invocation(existing_home(home), file, as_json=as_json, agent=agent)
        files = tuple(dict.fromkeys(questions))
        return evaluation.evaluate(call, files, cutoffs=depths, every=every, one_table=one_table)

    end(run)


@memory.group()
def facts() -> None:
    """List, edit, export and import facts."""


@facts.command("list")
@agent_option
@home_option
@config_option
@json_option
@click.option("--layer", type=click.Choice(["daily", "longterm"]), help="Only the daily log, or only long-term facts.")
def list_facts(
    home: Path | None, file: Path | None, layer: Literal["daily", "longterm"] | None, *, as_json: bool, agent: str
) -> None:
    """Print the facts with their current scores. The oldest come first. The gateway may be running."""
    from gateway.cli.memory import facts_commands

    end(lambda: facts_commands.list_facts(invocation(existing_home(home), file, as_json=as_json, agent=agent), layer))


@facts.command("edit")
@click.argument("fact", metavar="ID")
@agent_option
@home_option
@config_option
@json_option
@click.option("--text", help="The new text.")
@click.option("--type", "kind", help="The new type, such as preference.")
@click.option("--tag", "tags", multiple=True, help="The new tags, which replace all others; may be repeated. '' for none.")
@click.option("--importance", type=float, help="The new importance, from 0.3 to 1.")
@click.option("--everywhere/--here", default=None, help="Use it in all workspaces, or only in the configured one.")
def edit_fact(
    fact: str,
    home: Path | None,
    file: Path | None,
    *,
    as_json: bool,
    text: str | None,
    kind: str | None,
    tags: tuple[str, ...],
    importance: float | None,
    everywhere: bool | None,
    agent: str,
) -> None:
    """Edit the fact whose id begins with ID. The gateway must be stopped. The fact becomes a long-term one, which is not
    distilled or merged any more."""
    from gateway.cli.memory import facts_commands
    from plugins.api.fact_values import FactChange

    change = FactChange(content=text, type=kind, tags=tags or None, importance=importance, everywhere=everywhere)
    end(lambda: facts_commands.edit_fact(invocation(existing_home(home), file, as_json=as_json, agent=agent), fact, change))


@facts.command("export")
@click.argument("document", type=click.Path(path_type=Path, dir_okay=False), required=False)
@agent_option
@home_option
@config_option
def export_facts(document: Path | None, home: Path | None, file: Path | None, *, agent: str) -> None:
    """Export all facts as JSON, to a new file or to standard output. The gateway may be running."""
    from gateway.cli.memory import facts_commands

    end(lambda: facts_commands.export_facts(invocation(existing_home(home), file, agent=agent), document))


@facts.command("import")
@click.argument("document", type=click.Path(path_type=Path, dir_okay=False))
@agent_option
@home_option
@config_option
def import_facts(document: Path, home: Path | None, file: Path | None, *, agent: str) -> None:
    """Import the facts of DOCUMENT; the gateway must be stopped. Each refused entry is printed; exit code 1 if there is
    one."""
    from gateway.cli.memory import facts_commands

    end(lambda: facts_commands.import_facts(invocation(existing_home(home), file, agent=agent), document))


@facts.command("dedupe")
@agent_option
@home_option
@config_option
@json_option
def dedupe_facts(home: Path | None, file: Path | None, *, as_json: bool, agent: str) -> None:
    """Remove duplicate facts; the gateway must be stopped."""
    from gateway.cli.memory import facts_commands

    end(lambda: facts_commands.dedupe_facts(invocation(existing_home(home), file, as_json=as_json, agent=agent)))
