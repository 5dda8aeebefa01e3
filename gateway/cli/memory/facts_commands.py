"""The work of `exuvia memory facts list|edit|export|import|dedupe`. Each function prints and returns an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.conversations.facts.fact_store import facts_of, read_facts
from gateway.support.clock import SystemClock
from gateway.support.errors import GatewayError
from gateway.support.printable import printable
from gateway.support.session_status import count_of
from gateway.support.small_files import read_at_most
from gateway.support.storage import fact_logs
from gateway.wiring.open_stores import open_log_stores
from plugins.api.fact_values import Fact, FactChange, FactLayer, FactsError, InvalidFact
from plugins.facts.fact_export import LONGEST_FILE, ImportedFacts, encode_facts, parse_facts
from plugins.facts.facts import Facts
from plugins.facts.retention import is_outdated
from plugins.facts.scoring import current_importance
from sessions.events.codec import InvalidLine
from sessions.files.fsync import make_folder, write_new
from sessions.files.home_lock import HomeLock

T = TypeVar("T")


OPERATOR = "operator"


class FactsCommandFailed(GatewayError):
    """An operation on the facts failed; `str(error)` is a sentence."""


def list_facts(call: Invocation, layer: FactLayer | None) -> int:
    """Print the facts with their current scores, oldest first."""
    now = SystemClock().now()
    facts = [fact for fact in _read(call, now) if layer in (None, fact.layer)]
    if call.as_json:
        rows = [{**msgspec.to_builtins(fact), "worth": round(current_importance(fact, now), 3)} for fact in facts]
        print_json({"facts": rows}, call.out)
        return SUCCESS
    for fact in facts:
        call.out.write(_line(fact, now))
    if not facts:
        call.out.write("No facts.\n")
    return SUCCESS


def edit_fact(call: Invocation, named: str, change: FactChange) -> int:
    """Edit a fact and print it.

    Raises:
        HomeLocked: A gateway runs on the home.
        FactsCommandFailed: There is no such fact, a new value is invalid, or the facts cannot be read.
    """
    if change == FactChange():
        raise FactsCommandFailed("Nothing to change: give --text, --type, --tag, --importance, --everywhere or --here.")

    async def work(facts: Facts) -> Fact:
        return await facts.edit(named, change, OPERATOR, owner=None, shared=True)

    fact = _locked(call, work)
    if call.as_json:
        print_json({"fact": msgspec.to_builtins(fact)}, call.out)
    else:
        call.out.write(_line(fact, SystemClock().now()))
    return SUCCESS


def export_facts(call: Invocation, file: Path | None) -> int:
    """Write all facts as one JSON document, to a new file or to the output."""
    facts = _read(call, SystemClock().now())
    document = encode_facts(facts)
    if file is None:
        call.out.write(document.decode())
        return SUCCESS
    try:
        write_new(file, [document])
    except FileExistsError:
        raise FactsCommandFailed(f"{file} exists; nothing was written.") from None
    call.out.write(f"{count_of(len(facts), 'fact')} written to {file}.\n")
    return SUCCESS


def import_facts(call: Invocation, file: Path) -> int:
    """Import the facts of a JSON document and print each refused entry; return 1 if there is one.

    Raises:
        HomeLocked: A gateway runs on the home.
        FactsCommandFailed: The document or the facts cannot be read.
    """
    try:
        document = read_at_most(file, LONGEST_FILE)
    except OSError as error:
        raise FactsCommandFailed(f"{file} cannot be read: {error.strerror}.") from error
    if document is None:
        raise FactsCommandFailed(f"{file} is larger than {LONGEST_FILE >> 20} MB; import it in parts.")

    async def work(facts: Facts) -> ImportedFacts:
        book = await facts.book()
        found = parse_facts(document, book.facts, SystemClock().now())
        await facts.import_facts(found.entries, OPERATOR)
        return found

    found = _locked(call, work)
    for refusal in found.refused:
        call.out.write(printable(refusal) + "\n")
    call.out.write(f"{count_of(len(found.entries), 'fact')} imported, {len(found.refused)} refused.\n")
    return PROBLEM if found.refused else SUCCESS


def dedupe_facts(call: Invocation) -> int:
    """Remove duplicate facts.

    Raises:
        HomeLocked: A gateway runs on the home.
        FactsCommandFailed: The facts cannot be read.
    """

    async def work(facts: Facts) -> dict[str, str]:
        return await facts.dedupe()

    dropped = _locked(call, work)
    if call.as_json:
        print_json({"dropped": dropped}, call.out)
        return SUCCESS
    for each, kept in dropped.items():
        call.out.write(f"{each[:8]} is a duplicate of {kept[:8]}.\n")
    call.out.write(f"{count_of(len(dropped), 'fact')} removed.\n")
    return SUCCESS


def _line(fact: Fact, now: datetime) -> str:
    marks = [mark for mark, marked in (("pinned", fact.pinned), ("edited", fact.edited)) if marked]
    what = " ".join([fact.layer, fact.type, *marks, *([fact.owner] if fact.owner else [])])
    return (
        printable(f"{fact.id[:8]}  {fact.created[:10]}  {current_importance(fact, now):.2f}  {what}: {fact.content}") + "\n"
    )


def _read(call: Invocation, now: datetime) -> list[Fact]:
    """Return the facts of a home, without expired ones of the daily log."""
    keys = call.settings().current.memory.facts
    try:
        return [
            fact for fact in read_facts(fact_logs(call.home, call.agent)).facts.values() if not is_outdated(fact, keys, now)
        ]
    except InvalidLine as error:
        raise FactsCommandFailed(f"{call.agent_home.facts.name} cannot be read: {error}.") from error


def _locked(call: Invocation, work: Callable[[Facts], Awaitable[T]]) -> T:
    home, settings = call.home, call.settings()

    async def run() -> T:
        await asyncio.to_thread(make_folder, call.agent_home.root)  # the gateway may not have opened the agent yet
        async with (
            open_log_stores(home) as stores,
            facts_of(stores.of_agent(call.agent), home, settings, SystemClock()) as facts,
        ):
            return await work(facts)

    with HomeLock(home.lock):
        try:
            return asyncio.run(run())
        except (FactsError, InvalidFact) as error:
            raise FactsCommandFailed(str(error)) from error
