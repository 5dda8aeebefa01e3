"""`exuvia doctor`: check the gateway's surroundings, and say how to fix each problem.

Nothing is changed, and a running gateway is not disturbed. Checks that depend on the environment, such as keys and models,
are run by that gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.doctor import channel_checks, home_checks, machine_checks, provider_checks, store_checks
from gateway.doctor.config_check import check
from gateway.doctor.findings import EXAMINE_SECONDS, DoctorContext, Finding, Report
from gateway.support import instance_address, logs
from gateway.support.errors import ConfigRefused, sentence_of
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from gateway.terminal.client import local_gateway
from gateway.terminal.client.local_gateway import RequestFailed, TokenMissing, address_of, request

Check: TypeAlias = Callable[[DoctorContext], Iterable[Finding]]

GATEWAY = "gateway"
"""The check of the running gateway, which comes first."""

CHECKS: Mapping[str, Check] = {
    "configuration": home_checks.configuration,
    "home": home_checks.presence,
    "permissions": home_checks.permissions,
    "token": home_checks.token,
    "database": store_checks.database,
    "journals": home_checks.damage,
    "quarantine": home_checks.quarantine,
    "facts": home_checks.facts,
    "memory index": home_checks.memory_index,
    "memory backend": provider_checks.backend,
    "clock": home_checks.clock,
    "disk": machine_checks.disk,
    "file system": machine_checks.file_system,
    "files at once": machine_checks.descriptors,
    "address space": machine_checks.address_space_limit,
    "watching": machine_checks.watching,
    "sqlite": machine_checks.sqlite_extensions,
    "sandbox": machine_checks.sandbox,
    "mcp servers": machine_checks.mcp_servers,
    "service": machine_checks.unit,
    "port": machine_checks.port,
    "models": provider_checks.models,
    "embedding": provider_checks.embedding,
    "web search": provider_checks.web_search,
    "channels": channel_checks.channels,
}
"""All checks by name, in the order of the report. The findings of a running gateway replace those of the same name."""

OTHERS = "keys, models and plugins were checked in this terminal's environment"


def ask_running(context: DoctorContext) -> Report | Finding:
    """Ask the running gateway to examine itself; return a note with the reason if that is not possible."""
    home = context.home
    if instance_address.running_instance(home.address) is None and context.process() is None:
        return Finding(
            f"No gateway runs on {home.root}: {OTHERS}.",
            "Start one with `exuvia run` and run this again to check its own environment.",
            level="note",
        )
    try:
        endpoint = local_gateway.find_gateway(home, context.environment, url=None, token=None)
        path = f"/api/doctor{'?offline=1' if context.offline else ''}"
        body = request("POST", address_of(endpoint.url), path, endpoint.token, patience=EXAMINE_SECONDS + 10)
        return msgspec.json.decode(body, type=Report)
    except (TokenMissing, RequestFailed, ConfigRefused, OSError, msgspec.MsgspecError, UnicodeError) as error:
        return Finding(
            f"The gateway that runs on {home.root} could not be asked, so {OTHERS}: {sentence_of(error)}",
            "Use its own token, in HOME/token or EXUVIA_TOKEN; restart it if it runs an older version.",
            level="note",
        )


class CheckResult(msgspec.Struct, frozen=True):
    """A check and its findings."""

    check: str
    findings: tuple[Finding, ...]


def doctor(call: Invocation, *, offline: bool) -> int:
    """Run all checks and print their findings. Return 0 if there is no problem, else 1."""
    logs.configure("error", "auto")
    context = DoctorContext(
        home=call.home, checked=check(call.file, call.environment), environment=call.environment, offline=offline
    )
    report = ask_running(context)
    reported = _reported(report, call.file)
    results = []
    for name in (GATEWAY, *CHECKS):
        results.append(CheckResult(name, reported[name] if name in reported else run_check(CHECKS[name], context)))
        if not call.as_json:
            call.out.write(_lines(results[-1]))
            call.out.flush()  # some take a while
    wrong = sum(finding.level == "wrong" for each in results for finding in each.findings)
    if call.as_json:
        print_json(results, call.out)
    else:
        passed = count_of(sum(not each.findings for each in results), "check")
        scope = "" if isinstance(report, Report) else ", in this terminal's environment"
        call.out.write(f"{passed} passed, {count_of(wrong, 'problem')} found{scope}.\n")
    return PROBLEM if wrong else SUCCESS


def _reported(report: Report | Finding, config: Path) -> Mapping[str, tuple[Finding, ...]]:
    """Return the findings of the running gateway, or the note that none could be asked."""
    if isinstance(report, Finding):
        return {GATEWAY: (report,)}
    if report.config is None or Path(report.config) == config.absolute():
        return report.findings
    other = Finding(
        f"The gateway runs with {report.config}, which was checked instead of {config}.",
        f"`exuvia config check {config}` checks that file.",
        level="note",
    )
    return {**report.findings, GATEWAY: (*report.findings[GATEWAY], other)}


def run_check(check: Check, context: DoctorContext) -> tuple[Finding, ...]:
    """Run a check; an exception becomes a finding, so that the other checks still run."""
    try:
        return tuple(check(context))
    except Exception as error:
        return (Finding.of_failure(error),)


def _lines(each: CheckResult) -> str:
    return "".join(
        f"{finding.level:<6} {each.check}: {one_line(finding.what, 500)}\n       → {one_line(finding.mend, 500)}\n"
        for finding in each.findings
    )
