"""The protocol with a service manager: sd_notify, the watchdog, socket activation.

It is a datagram and three variables, so no library is used:
https://www.freedesktop.org/software/systemd/man/sd_notify.html and sd_listen_fds.html. Without a service manager, everything
here does nothing.
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
"""The file descriptor of the first passed socket."""

STOP_MARGIN = 10.0
"""Seconds for closing everything after the last turn."""

WATCHDOG_SHARE = 0.8
"""The share of the watchdog's shortest delay after which the gateway itself ends a blocked event loop."""

log = structlog.get_logger("exuvia.supervision")


class Supervisor:
    """The service manager that started this process, if any; `environment` says how it is reached."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._feeding = _seconds_between_feeds(environment)

    def ready(self, status: str) -> None:
        """Report that the gateway listens."""
        self._notify("READY=1", f"STATUS={status}")

    def stopping(self, seconds: float) -> None:
        """Report that the gateway stops, and ask for `seconds` more for its running turns."""
        extension = round((seconds + STOP_MARGIN) * 1_000_000)
        self._notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={extension}", "STATUS=Stopping; running turns may finish.")

    @contextlib.asynccontextmanager
    async def watchdog_fed(self) -> AsyncIterator[None]:
        """Feed the watchdog from the event loop, twice as often as required, so that a blocked loop is noticed.

        The signal that the watchdog kills with leaves a traceback of every thread.
        """
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
            self._notify("WATCHDOG=1")
            await asyncio.sleep(seconds)

    def _notify(self, *lines: str) -> None:
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
    """Return half of the watchdog's interval; None without a watchdog, or if it watches another process."""
    text = environment.get("WATCHDOG_USEC", "")
    if not text.isdecimal() or int(text) == 0:
        return None
    meant = environment.get("WATCHDOG_PID", "")
    if meant and meant != str(os.getpid()):
        return None
    return int(text) / 2 / 1_000_000


def before_watchdog(seconds: float, environment: Mapping[str, str]) -> float:
    """Shorten the time after which a blocked event loop ends the gateway, so that this precedes the service manager's
    watchdog, which does not report the cause. 0 (never) stays."""
    feeding = _seconds_between_feeds(environment)
    # The last feed may be one interval ago; the watchdog then waits for another one.
    return seconds if feeding is None else min(seconds, WATCHDOG_SHARE * feeding)


def passed_socket(environment: Mapping[str, str]) -> socket.socket | None:
    """Return the listening socket that the service manager opened for this process; None if there is none.

    Raises:
        StartRefused: It passed several sockets, or one that does not listen for TCP.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = environment.get("LISTEN_FDS", "")
    if count in ("", "0"):
        return None
    if count != "1":
        raise StartRefused(f"Only one socket can be passed, but LISTEN_FDS is {count}; use one ListenStream=.")
    try:
        passed = socket.socket(fileno=FIRST_PASSED)
    except OSError as error:
        raise StartRefused(f"The passed socket cannot be used: {error.strerror}.") from error
    passed.set_inheritable(False)
    if not _listens(passed):
        passed.close()
        raise StartRefused("The passed socket does not listen for TCP; ListenStream= needs an address with a port.")
    return passed


def _listens(passed: socket.socket) -> bool:
    if passed.family not in (socket.AF_INET, socket.AF_INET6) or passed.type != socket.SOCK_STREAM:
        return False
    return bool(passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
