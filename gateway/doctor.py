"""`exuvia doctor`: looks at everything that may be wrong around a gateway, and says of each finding what mends it.

It reads and asks, and changes nothing: a gateway that runs on the home goes on undisturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TextIO, TypeAlias

import msgspec

from gateway import doctor_home, doctor_machine, doctor_models, doctor_network, logs
from gateway.config_checking import check
from gateway.doctor_findings import Finding, Patient
from gateway.errors import sentence_of
from gateway.home import Home
from gateway.session_commands import WELL, WRONG, print_json
from gateway.terminal.printable import one_line

Check: TypeAlias = Callable[[Patient], Iterable[Finding]]

CHECKS: Mapping[str, Check] = {
    "configuration": doctor_home.configuration,
    "home": doctor_home.presence,
    "permissions": doctor_home.permissions,
    "token": doctor_home.token,
    "journals": doctor_home.damage,
    "quarantine": doctor_home.quarantine,
    "clock": doctor_home.clock,
    "disk": doctor_machine.disk,
    "file system": doctor_machine.file_system,
    "files at once": doctor_machine.descriptors,
    "watching": doctor_machine.watching,
    "sqlite": doctor_machine.sqlite_extensions,
    "service": doctor_machine.unit,
    "port": doctor_network.port,
    "models": doctor_models.models,
}
"""All that is looked at, by name, in the order in which it is told."""


class Examined(msgspec.Struct, frozen=True):
    """One check and what it found."""

    check: str
    findings: tuple[Finding, ...]


def doctor(home: Home, config: Path, environment: Mapping[str, str], out: TextIO, *, offline: bool, as_json: bool) -> int:
    """Run all checks and print what they find. Returns 0 if nothing is wrong, else 1."""
    logs.configure("error", "auto")
    patient = Patient(home=home, checked=check(config, environment), environment=environment, offline=offline)
    found = []
    for name, look in CHECKS.items():
        found.append(Examined(name, examined(look, patient)))
        if not as_json:
            out.write(_lines(found[-1]))
            out.flush()  # some take a while
    wrong = sum(finding.level == "wrong" for each in found for finding in each.findings)
    if as_json:
        print_json(found, out)
    else:
        out.write("Nothing is wrong.\n" if not wrong else f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong.\n")
    return WRONG if wrong else WELL


def examined(look: Check, patient: Patient) -> tuple[Finding, ...]:
    """What one check finds; that it fails is a finding too, and keeps no other from being made."""
    try:
        return tuple(look(patient))
    except Exception as error:
        what = f"This could not be looked at: {type(error).__name__}: {sentence_of(error)}"
        return (
            Finding(what=what, mend="Run `exuvia doctor` as the user that runs the gateway; else it is a fault of ours."),
        )


def _lines(each: Examined) -> str:
    if not each.findings:
        return f"well   {each.check}\n"
    return "".join(
        f"{finding.level:<6} {each.check}: {one_line(finding.what, 500)}\n       → {one_line(finding.mend, 500)}\n"
        for finding in each.findings
    )
