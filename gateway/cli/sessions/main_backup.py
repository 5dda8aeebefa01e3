"""`exuvia backup`, `exuvia restore` and `exuvia erase`, as click commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import end, existing_home, home_at, home_option, invocation, json_option

NICE = 19
"""How much a backup yields to the gateway, which people wait for."""


@click.command()
@click.argument("target", metavar="DIR|-")
@home_option
@json_option
@click.option("--secrets", "with_secrets", is_flag=True, help="Copy the token, keys and logins too.")
@click.option(
    "--age", "recipients", multiple=True, metavar="RECIPIENT", help="Encrypt with age for this recipient. May be repeated."
)
@click.option("--verify", is_flag=True, help="Only verify the backup in DIR.")
def backup(  # noqa: PLR0917 - click passes each option by its name
    target: str, home: Path | None, as_json: bool, with_secrets: bool, recipients: tuple[str, ...], verify: bool
) -> None:
    """Back up the home. It is written to the folder DIR, or as a tar archive to the standard output. The gateway may be
    running. In DIR, only what is new is copied, and verified; a crash leaves the previous backup whole. With --age, DIR gets
    an encrypted archive each time. Exit code 1 if something is damaged or could not be read."""
    os.nice(NICE)  # before the imports, which take longer than a small backup
    from gateway.cli.sessions import backup_commands as commands

    if verify:
        end(lambda: commands.verify(Path(target), as_json=as_json))
    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.back_up_home(call, target, recipients=recipients, with_secrets=with_secrets))


@click.command()
@click.argument("source", metavar="DIR|FILE|-")
@home_option
@json_option
@click.option("--identity", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="The key file of age.")
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A newer deletions.jsonl, whose erasures are applied. May be repeated.",
)
def restore(source: str, home: Path | None, as_json: bool, identity: Path | None, ledgers: tuple[Path, ...]) -> None:
    """Restore a home from a backup. SOURCE is the folder or archive that `exuvia backup` wrote. A home is never overwritten,
    everything is verified first, and what was erased after the backup is erased in it before it can be used."""
    from gateway.cli.sessions import backup_commands as commands

    end(lambda: commands.restore_home(home_at(home), source, identity=identity, ledgers=ledgers, as_json=as_json))


_whose = click.option("--person", default="owner", show_default=True, help="The person whose conversation it is.")


def _confirmation(prompt: str) -> Callable[[Any], Any]:
    return click.confirmation_option(prompt=f"{prompt} Nothing brings it back. Continue?")


@click.group()
def erase() -> None:
    """Erase what was said. The gateway may be running."""


@erase.command("message")
@click.argument("session")
@click.argument("seq", type=click.IntRange(min=1))
@home_option
@json_option
@_whose
@_confirmation("This erases the message, its answer, and the summaries, notes, facts and files that came of it.")
def erase_message(session: str, seq: int, home: Path | None, as_json: bool, person: str) -> None:
    """Erase the message SEQ of SESSION. `exuvia sessions show` prints the numbers. Its turn, and what was made of it, is
    erased too, also in forks. A receipt says what remains elsewhere."""
    from gateway.cli.sessions import erase_commands as commands

    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.erase_message(call, session, seq, person=person))


@erase.command("session")
@click.argument("key")
@home_option
@json_option
@_whose
@_confirmation("This erases the conversation, and the notes, facts and files that came of it.")
def erase_session(key: str, home: Path | None, as_json: bool, person: str) -> None:
    """Erase and delete the conversation KEY. What forks share with it is erased too."""
    from gateway.cli.sessions import erase_commands as commands

    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.erase_session(call, key, person=person))


@erase.command("person")
@click.argument("person", metavar="NAME")
@home_option
@json_option
@_confirmation("This erases all conversations of the person, and everything else that is stored of them.")
def erase_person(person: str, home: Path | None, as_json: bool) -> None:
    """Erase what the person NAME has left. These are all their conversations, their entry among the people, their schedules,
    facts, notes and links. A receipt says what remains."""
    from gateway.cli.sessions import erase_commands as commands

    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.erase_person(call, person))
