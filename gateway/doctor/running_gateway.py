"""The gateway that runs on a home, asked by the doctor what it finds about itself (`self_examination`)."""

from __future__ import annotations

import msgspec

from gateway import whereabouts
from gateway.doctor.findings import EXAMINE_SECONDS, Finding, Patient, Report
from gateway.errors import ConfigRefused, sentence_of
from gateway.terminal import front_door
from gateway.terminal.front_door import TokenMissing
from gateway.terminal.gateway_request import NotAsked, address_of, requested

OTHERS = "keys, models and plugins were looked at as this terminal's environment has them"


def ask_running(patient: Patient) -> Report | Finding:
    """Have the gateway that runs on the home examine itself; return why it could not, as a note, if that is so."""
    home = patient.home
    if whereabouts.found(home.address) is None and patient.process() is None:
        return Finding(
            level="note",
            what=f"No gateway runs on {home.root}: {OTHERS}.",
            mend="`exuvia run` starts one; ask again while it runs to see what it has.",
        )
    try:
        door = front_door.find(home, patient.environment, url=None, token=None)
        path = f"/api/doctor{'?offline=1' if patient.offline else ''}"
        body = requested("POST", address_of(door.url), path, door.token, patience=EXAMINE_SECONDS + 10)
        return msgspec.json.decode(body, type=Report)
    except (TokenMissing, NotAsked, ConfigRefused, OSError, msgspec.MsgspecError, UnicodeError) as error:
        return Finding(
            level="note",
            what=f"The gateway that runs on {home.root} could not be asked, so {OTHERS}: {sentence_of(error)}",
            mend="Ask with its own token, from HOME/token or in EXUVIA_TOKEN; and restart it if it is of an older version.",
        )
