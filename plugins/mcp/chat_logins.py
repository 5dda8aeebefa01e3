"""Logins that a person begins in a chat: an address to open, and the address that the browser was sent back to.

A browser on the gateway's own machine brings its answer back by itself; from any other the person passes it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.shared.auth import AuthorizationCodeResult

from plugins.mcp.connection import Connection, Listing
from plugins.mcp.oauth import LOGIN_SECONDS, LoginNeeded, OAuthFlow, authorization_result, callback_listener

BEGIN_SECONDS = 25.0
"""Seconds for finding the authorization server, and for the login after the browser's answer."""


class ChatLogin:
    """One login to one server.

    Args:
        flow: The login, which keeps its tokens.
        connect: Returns a connection that uses the flow.
    """

    def __init__(
        self, flow: OAuthFlow, connect: Callable[[OAuthFlow, Callable[[Listing], Awaitable[None]]], Connection]
    ) -> None:
        self._flow = flow
        self._connect = connect
        self._opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pasted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="mcp login")

    async def address(self) -> str:
        """Return the address to open; "" if the server asks for no login.

        Raises:
            LoginNeeded: No login can begin.
        """
        either: set[asyncio.Future[Any]] = {self._opened, self._task}
        await asyncio.wait(either, timeout=BEGIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return self._opened.result()
        if not self._task.done():
            raise LoginNeeded("the server does not say in time where to log in")
        self._task.result()
        return ""

    async def finish(self, address: str) -> None:
        """Log in with the address that the browser was sent back to.

        Raises:
            LoginNeeded: The login failed.
        """
        if not self._pasted.done():
            self._pasted.set_result(address)
        await asyncio.wait([self._task], timeout=BEGIN_SECONDS)
        if not self._task.done():
            raise LoginNeeded("the server does not answer in time")
        self._task.result()

    async def close(self) -> None:
        """End the login if it has not ended."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        async with callback_listener() as (redirect, browser):

            async def show(url: str) -> None:
                self._opened.set_result(url)

            async def answer() -> AuthorizationCodeResult:
                returned = asyncio.ensure_future(browser())
                try:
                    either: set[asyncio.Future[Any]] = {returned, self._pasted}
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    return await returned if returned.done() else authorization_result(self._pasted.result())
                finally:
                    returned.cancel()

            self._flow.interactive(show, answer, redirect)
            connection = self._connect(self._flow, _ignore)
            running = asyncio.create_task(connection.run(), name="mcp login connection")
            try:
                async with asyncio.timeout(LOGIN_SECONDS):
                    await connection.settled()
            finally:
                running.cancel()
                await asyncio.wait([running])
            if not connection.health.ready:
                raise LoginNeeded(connection.health.problem)


async def _ignore(_: Listing) -> None:
    """Offer nothing: the server's own connection does."""
