"""What a service manager and the gateway say to each other: sd_notify, the watchdog, and a socket that was opened before.

By hand, for it is a datagram and three variables: https://www.freedesktop.org/software/systemd/man/sd_notify.html and
sd_listen_fds.html. Where no manager asks for it, everything here does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import socket
from collections.abc import AsyncIterator, Mapping

import structlog

from gateway.support.errors import StartRefused

FIRST_PASSED = 3
"""The file descriptor of the first socket that is passed."""

STOP_MARGIN = 10.0
"""Seconds that taking everything down may take after the last turn was waited for."""

SOONER = 0.8
"""The share of the time until the watchdog's earliest moment after which a blocked event loop is given up here."""

log = structlog.get_logger("exuvia.supervision")


class Supervisor:
    """The service manager that started this process, if one did; `environment` says how it is reached."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._feeding = _seconds_between_feeds(environment)

    def ready(self, status: str) -> None:
        """The gateway listens."""
        self._say("READY=1", f"STATUS={status}")

    def stopping(self, seconds: float) -> None:
        """The gateway stops, and may take so many seconds for its running turns; the manager then waits as long."""
        extension = round((seconds + STOP_MARGIN) * 1_000_000)
        self._say("STOPPING=1", f"EXTEND_TIMEOUT_USEC={extension}", "STATUS=Stopping; running turns may finish.")

    @contextlib.asynccontextmanager
    async def fed(self) -> AsyncIterator[None]:
        """Feed the watchdog from the event loop meanwhile, twice as often as it asks, so that a loop that is blocked is
        noticed. The signal that it kills with then leaves a traceback of every thread."""
        if self._feeding is None or not self._address:
            yield
            return
        if not faulthandler.is_enabled():
            faulthandler.enable()
        feeder = asyncio.create_task(self._feed(self._feeding))
        try:
            yield
        finally:
            feeder.cancel()
            await asyncio.wait([feeder])

    async def _feed(self, seconds: float) -> None:
        while True:
            self._say("WATCHDOG=1")
            await asyncio.sleep(seconds)

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        # An abstract address is written with @ and begins with a NUL.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.warning("manager_not_told", said=lines[0], reason=str(error))


def _seconds_between_feeds(environment: Mapping[str, str]) -> float | None:
    """Half of what the watchdog allows; None if there is none, or it waits for another process."""
    text = environment.get("WATCHDOG_USEC", "")
    if not text.isdecimal() or int(text) == 0:
        return None
    meant = environment.get("WATCHDOG_PID", "")
    if meant and meant != str(os.getpid()):
        return None
    return int(text) / 2 / 1_000_000


def before_watchdog(seconds: float, environment: Mapping[str, str]) -> float:
    """Shorten a time after which a blocked event loop ends the gateway, so that it comes before the manager's watchdog,
    which leaves no word of who was at fault. 0, for never, stays."""
    feeding = _seconds_between_feeds(environment)
    # The last feed may lie as far back as the time between two: the watchdog then waits for as long again.
    return seconds if feeding is None else min(seconds, SOONER * feeding)


def passed_socket(environment: Mapping[str, str]) -> socket.socket | None:
    """The listening socket that the manager opened for this process; None if there is none. StartRefused if it is more than
    one, or one that no browser could come to."""
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = environment.get("LISTEN_FDS", "")
    if count in ("", "0"):
        return None
    if count != "1":
        raise StartRefused(f"One socket can be taken over, and LISTEN_FDS is {count}; one ListenStream= is enough.")
    try:
        passed = socket.socket(fileno=FIRST_PASSED)
    except OSError as error:
        raise StartRefused(f"The socket that was passed cannot be used: {error.strerror}.") from error
    passed.set_inheritable(False)
    if not _listens(passed):
        passed.close()
        raise StartRefused("The socket that was passed does not listen for TCP; ListenStream= is an address with a port.")
    return passed


def _listens(passed: socket.socket) -> bool:
    if passed.family not in (socket.AF_INET, socket.AF_INET6) or passed.type != socket.SOCK_STREAM:
        return False
    return bool(passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
