"""Checks of the gateway's address: free, or used by this gateway."""

from __future__ import annotations

import http.client
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from gateway.doctor.findings import DoctorContext, Finding

PATIENCE = 2.0
"""Seconds to wait for a response."""


def port(patient: DoctorContext) -> Iterator[Finding]:
    """Report a configured address that cannot be used, unless this home's gateway has it."""
    if patient.config is None or patient.config.gateway.port == 0:
        return
    host, number = patient.config.gateway.host.strip("[]"), patient.config.gateway.port
    mend = "Stop that program, or choose another port: gateway.port, EXUVIA_PORT or --port."
    process, owner = patient.process(), _listener(number)
    if not _answers(host, number):
        if process is None:
            yield from _listening(host, number)
        return
    if process is not None:
        return  # it is running, here or at the address of its command line
    if _is_exuvia(host, number):
        yield Finding(what=f"{host}:{number} is in use by another Exuvia{_words(owner)} with another home.", mend=mend)
    else:
        yield Finding(what=f"{host}:{number} is in use by another program{_words(owner)}.", mend=mend)


def _listening(host: str, number: int) -> Iterator[Finding]:
    """Listen on the address for a moment, as a start would."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, number))
        except OSError as error:
            yield Finding(
                what=f"{host}:{number} cannot be listened on: {error.strerror or error}.",
                mend="Set gateway.host to an address of this machine, and gateway.port to a port from 1024 up.",
            )


def _answers(host: str, number: int) -> bool:
    """Return True if something accepts connections there."""
    try:
        with socket.create_connection((_reachable(host), number), timeout=PATIENCE):
            return True
    except OSError:
        return False


def _is_exuvia(host: str, number: int) -> bool:
    """Return True if a gateway's health check responds there."""
    connection = http.client.HTTPConnection(_reachable(host), number, timeout=PATIENCE)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return response.status == 200 and response.read(64) == b"ok\n"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _listener(number: int) -> int | None:
    """Return the process that listens on a port, if Linux shows it to this user."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        fields = [line.split() for line in lines]
        inodes |= {
            f"socket:[{each[9]}]" for each in fields if each[3] == "0A" and int(each[1].rpartition(":")[2], 16) == number
        }
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(os.readlink(entry) in inodes for entry in folder.iterdir()):
                return int(folder.parent.name)
        except OSError:
            continue  # another user's, or gone meanwhile
    return None


def _words(process: int | None) -> str:
    if process is None:
        return ""
    try:
        name = re.sub(r"[^\w .-]", "", Path(f"/proc/{process}/comm").read_text().strip())
    except OSError:
        name = "exited"
    return f" (process {process}, {name})"
