"""`exuvia usage`: the report of a month, from the ledgers. It only reads, also while the gateway runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

import click

from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.models.spending.report import MonthReport, Part, ledger_months, month_report
from gateway.models.spending.spending_log import Zones, read_ledgers
from gateway.support.printable import one_line
from gateway.support.storage import fact_logs
from plugins.commands.markdown import amount

_MONTH = re.compile(r"\d{4}-\d{2}")


def usage(call: Invocation, month: str | None, person: str | None) -> int:
    """Print what was spent in a month, by person, agent, purpose and model."""
    config = call.config()
    zones = Zones.of(config)
    now = datetime.now(UTC).astimezone(zones.zone(person or ""))
    asked = now.date() if month is None else _month(month)
    sums = read_ledgers(fact_logs(call.home), ledger_months(asked), zones)
    report = month_report(sums, asked, config.usage.currency, now, person=person)
    if call.as_json:
        print_json(report, call.out)
    else:
        call.out.write(_text(report))
    return SUCCESS


def _month(text: str) -> date:
    try:
        if _MONTH.fullmatch(text):
            return date.fromisoformat(f"{text}-01")
    except ValueError:
        pass
    raise click.ClickException(f"--month is {one_line(text, 40)!r}; write a month such as 2026-11.")


def _text(report: MonthReport) -> str:
    total, currency = report.total, report.currency
    if not total.requests:
        return f"No request to a model was made in {report.month}.\n"
    lines = [f"{report.month}: {amount(total.micros, currency)} for {total.requests:,} requests"]
    if report.forecast is not None:
        lines[0] += f", at this rate {amount(report.forecast, currency)} by the end of the month"
    if total.estimated:
        lines.append(f"{amount(total.estimated, currency)} of it are estimated.")
    if total.unpriced:
        lines.append(f"The price of {total.unpriced:,} requests is not known; they are in no sum.")
    for title, parts in (
        ("person", report.people),
        ("agent", report.agents),
        ("purpose", report.purposes),
        ("model", report.models),
        ("day", report.days),
    ):
        lines += ["", *_table(title, parts, currency)]
    return "\n".join(lines) + "\n"


def _table(title: str, parts: Sequence[Part], currency: str) -> list[str]:
    names = [one_line(part.name, 60) or "(nobody)" for part in parts]
    width = max(map(len, [title, *names]))
    head = f"{title:{width}}  {'requests':>9}  {'in':>13}  {'cached':>13}  {'out':>12}  {'cost':>14}"
    return [head] + [
        f"{name:{width}}  {part.requests:9,}  {part.input:13,}  {part.cached:13,}  {part.output:12,}"
        f"  {amount(part.micros, currency):>14}"
        for name, part in zip(names, parts, strict=True)
    ]
