"""The connection to one server, kept up by one task for the whole gateway.

Everything of the SDK (its cancel scopes, its task groups) stays within the task of one attempt to serve, and in tasks that
this task ends. Callers wait for such a task; if they are cancelled, it is cancelled, which tells the server. An attempt that
ends is followed by another after a pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import mcp_types
import msgspec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from plugins.api.tool import ToolContext
from plugins.mcp.definitions import MESSAGE_BYTES, TOOLS, one_visible_line
from plugins.mcp.elicitation import answer_elicitation
from plugins.mcp.http_transport import SESSION_LOST, guarded_client, trusted_certificates
from plugins.mcp.mcp_settings import ServerKeys
from plugins.mcp.oauth import LoginNeeded, OAuthFlow
from plugins.mcp.sandboxed_transport import SandboxedTransport
from plugins.mcp.stdio_transport import StdioTransport
from plugins.sandbox.policy import Level
from plugins.support.errors import ToolFailed
from plugins.support.secrets import revealed, scrubbed

T = TypeVar("T")

CONNECT_SECONDS = 60.0
"""Seconds that a server has to start and to introduce itself; the first start of one may download it."""

LIST_SECONDS = 60.0
"""Seconds for a list, a resource or a prompt."""

WAIT_SECONDS = 10.0
"""Seconds that a call waits for a server that is being restarted."""

PAUSES = (0.1, 0.5, 2.0, 5.0, 15.0, 60.0)
"""Seconds before each attempt, if those before it failed before the server was ready."""

LIVELY_PAUSES = (0.1, 0.2, 0.5, 1.0)
"""The same if the server was ready each time, and ended soon."""

STEADY_SECONDS = 10.0
"""Seconds after which a server counts as steady."""

STOP_SECONDS = 8.0
"""Seconds that an attempt has to end; its server is killed within them."""

PAGES = 50
"""Pages of a list that are read."""

PROGRESS_SECONDS = 0.2
"""Seconds between two reports of progress that are shown."""

SETTLE_SECONDS = 0.2
"""Seconds after a change of the lists before they are read again."""

# The SDK logs what servers send, and tracebacks of what is handled here.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

_call: ContextVar[ToolContext | None] = ContextVar("exuvia_mcp_call", default=None)
"""The tool call that the current task of the SDK works for."""


class Unavailable(ToolFailed):
    """The server is not available; `str(error)` is a sentence."""


class _Refused(Unavailable):
    """The server did not take a request, since it no longer knows the session."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The offers of a server: its name and version, the version of the protocol, entries of its lists as JSON objects."""

    server: str
    protocol: str
    tools: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    resources: bool = False


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a connection. `problem` is a sentence, "" if there is none; `starts` counts the attempts."""

    ready: bool
    problem: str
    starts: int


class _Transport(Protocol):
    ended: asyncio.Event

    def connect(self) -> Any: ...
    async def reason(self) -> str: ...


class _HttpTransport:
    """The SDK's transport over a guarded client."""

    def __init__(self, url: str, headers: Mapping[str, str], oauth: OAuthFlow | None) -> None:
        self._url = url
        self._headers = headers
        self._oauth = oauth
        self.ended = asyncio.Event()

    async def reason(self) -> str:
        """Return why the connection ended."""
        return "the connection ended"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """Connect while the block runs."""
        auth = None if self._oauth is None else await self._oauth.provider()
        certificates = await asyncio.to_thread(trusted_certificates)
        async with (
            guarded_client(self._url, self._headers, auth, certificates) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
        ):
            yield streams


class Connection:
    """The connection to one server.

    Args:
        name: The server's name in the configuration.
        keys: Its configuration.
        workspace: The folder in which programs run, unless the configuration names another.
        environment: The gateway's environment.
        sandbox: Returns the level of the sandbox, None if none is accepted.
        oauth: The login for a server with an address; None for none.
        listed: Called with what the server offers, each time that it is read.
    """

    def __init__(
        self,
        name: str,
        keys: ServerKeys,
        *,
        workspace: Path,
        environment: Mapping[str, str],
        sandbox: Callable[[], Awaitable[Level | None]],
        oauth: OAuthFlow | None,
        listed: Callable[[Listing], Awaitable[None]],
    ) -> None:
        self.name = name
        self._keys = keys
        self._workspace = workspace
        self._environment = environment
        self._sandbox = sandbox
        self._oauth = oauth
        self._listed = listed
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._settled = asyncio.Event()
        self._restart = asyncio.Event()
        self._changed = asyncio.Event()
        self._requests: set[asyncio.Task[Any]] = set()
        self._calls: list[ToolContext] = []
        self._legacy = False
        self._ready_at = 0.0
        self._health = Health(ready=False, problem="", starts=0)

    @property
    def health(self) -> Health:
        """The present state."""
        return self._health

    async def settled(self) -> None:
        """Wait until the server is ready, or the first attempt failed."""
        await self._settled.wait()

    # --- the owner task -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        failures = 0
        while True:
            self._health = msgspec.structs.replace(self._health, starts=self._health.starts + 1)
            self._restart.clear()
            self._ready_at = 0.0
            # Each attempt has a task of its own: whatever the SDK leaves behind in it (a cancellation) ends with it.
            attempt = asyncio.create_task(self._serve(), name=f"mcp:{self.name}")
            try:
                await asyncio.wait([attempt])
            finally:
                self._client = None
                if not attempt.done():
                    attempt.cancel()
                    await asyncio.wait([attempt], timeout=STOP_SECONDS)
            reason = "it was cancelled" if attempt.cancelled() else _reason(attempt.exception())
            lived = time.monotonic() - self._ready_at if self._ready_at else None
            if lived is None and not self._keys.url:
                self._legacy = not self._legacy  # some old servers end at a request before the handshake
            failures = 0 if lived is not None and lived > STEADY_SECONDS else failures + 1
            pauses = PAUSES if lived is None else LIVELY_PAUSES
            self._health = msgspec.structs.replace(self._health, ready=False, problem=scrubbed(reason))
            self._settled.set()
            await self._pause(pauses[min(failures, len(pauses)) - 1] if failures else pauses[0])

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt; a login in the meantime ends the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self._oauth is not None:
                    with suppress(Exception):  # no thread can be started to look at the file
                        await self._oauth.changed()
                        return
                await asyncio.sleep(seconds)

    async def _serve(self) -> None:
        """Connect, and serve requests until the connection ends. Always raises."""
        transport = self._transport()
        async with AsyncExitStack() as stack:
            client = Client(
                transport.connect(),
                client_info=_client_info(),
                mode="legacy" if self._legacy else "auto",
                elicitation_callback=partial(answer_elicitation, self._calling),
                message_handler=self._on_message,
                cache=None,
            )
            try:
                async with asyncio.timeout(
                    CONNECT_SECONDS if self._oauth is None else self._oauth.patience(CONNECT_SECONDS)
                ):
                    await stack.enter_async_context(client)
                    # A schema of the server, with patterns of the server, would be run on the event loop.
                    setattr(client.session, "validate_tool_result", _accept)  # noqa: B010 - it is a method
                    await self._listed(await self._list(client))
            except TimeoutError:
                raise Unavailable("it did not introduce itself in time") from None
            except Exception as error:
                cause = _cause(error)
                if not isinstance(cause, MCPError) or cause.code != mcp_types.CONNECTION_CLOSED:
                    raise
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await transport.ended.wait()
                raise Unavailable(await transport.reason()) from error
            self._client, self._ready_at = client, time.monotonic()
            self._health = msgspec.structs.replace(self._health, ready=True, problem="")
            self._ready.set()
            self._settled.set()
            try:
                await self._until_over(client, transport)
                reason = await transport.reason()
            finally:
                self._client = None
                for request in self._requests:
                    request.cancel()
                if self._requests:
                    await asyncio.wait(self._requests, timeout=1.0)
            raise Unavailable("the session is no longer known" if not transport.ended.is_set() else reason)

    async def _until_over(self, client: Client, transport: _Transport) -> None:
        """Read the lists again whenever they change, until the connection ends."""
        over = [asyncio.create_task(transport.ended.wait()), asyncio.create_task(self._restart.wait())]
        listening = asyncio.create_task(self._listen(client))
        try:
            while not any(each.done() for each in over):
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([*over, changed], return_when=asyncio.FIRST_COMPLETED)
                if not changed.done():
                    changed.cancel()
                    return
                await asyncio.sleep(SETTLE_SECONDS)
                self._changed.clear()
                async with asyncio.timeout(LIST_SECONDS):
                    await self._listed(await self._list(client))
        finally:
            for task in (*over, listening):
                task.cancel()
            await asyncio.wait([*over, listening])

    def _transport(self) -> _Transport:
        keys = self._keys
        if keys.url:
            return _HttpTransport(keys.url, revealed(keys.headers), self._oauth)
        if keys.sandbox:
            return SandboxedTransport(
                keys.command,
                revealed(keys.env),
                workspace=self._workspace,
                cwd=keys.cwd or ".",
                readable=keys.readable,
                level=self._sandbox,
            )
        folder = self._workspace / Path(keys.cwd or ".").expanduser()
        return StdioTransport(keys.command, revealed(keys.env), folder, self._environment)

    # --- lists and changes --------------------------------------------------------------------------------------------

    async def _list(self, client: Client) -> Listing:
        offers, info = client.server_capabilities, client.server_info
        self._changed.clear()
        tools = await _pages(client.list_tools, lambda page: page.tools) if offers.tools else []
        prompts = await _pages(client.list_prompts, lambda page: page.prompts) if offers.prompts else []
        return Listing(
            server=one_visible_line(f"{info.name} {info.version}", 200) if info else "",
            protocol=client.protocol_version,
            tools=tuple(_json_object(tool) for tool in tools[: TOOLS + 1]),
            prompts=tuple(_json_object(prompt) for prompt in prompts[:TOOLS]),
            resources=bool(offers.resources),
        )

    async def _on_message(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification | mcp_types.PromptListChangedNotification):
            self._changed.set()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes where they are no longer sent unasked."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True, prompts_list_changed=True) as subscription:
                    async for _ in subscription:
                        self._changed.set()
            except SubscriptionLost:
                self._changed.set()
            except Exception:  # the server has no subscriptions, or is gone
                return
            await asyncio.sleep(STEADY_SECONDS)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def call_tool(self, tool: str, arguments: dict[str, Any], call: ToolContext) -> mcp_types.CallToolResult:
        """Call a tool.

        Raises:
            ToolFailed: The server is not available, or refuses the call.
        """
        progress = _Progress(call)

        async def send(client: Client) -> mcp_types.CallToolResult:
            return await client.call_tool(tool, arguments, progress_callback=progress.report)

        token = _call.set(call)
        self._calls.append(call)
        try:
            return await self._request(send)
        finally:
            self._calls.remove(call)
            _call.reset(token)

    async def resources(self) -> Sequence[mcp_types.Resource]:
        """Return the resources. Raises ToolFailed."""
        return await self._request(lambda client: _pages(client.list_resources, lambda page: page.resources), LIST_SECONDS)

    async def resource(self, uri: str) -> mcp_types.ReadResourceResult:
        """Return the content of a resource. Raises ToolFailed."""
        return await self._request(lambda client: client.read_resource(uri), LIST_SECONDS)

    async def prompt(self, prompt: str, arguments: dict[str, str]) -> mcp_types.GetPromptResult:
        """Return the messages of a prompt. Raises ToolFailed."""
        return await self._request(lambda client: client.get_prompt(prompt, arguments), LIST_SECONDS)

    async def _request(self, send: Callable[[Client], Coroutine[Any, Any, T]], seconds: float | None = None) -> T:
        try:
            return await self._attempt(send, seconds)
        except _Refused:  # nothing ran, so it may be sent again
            return await self._attempt(send, seconds)

    async def _attempt(self, send: Callable[[Client], Coroutine[Any, Any, T]], seconds: float | None) -> T:
        client = await self._connected()
        request = asyncio.create_task(send(client))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        try:
            await asyncio.wait([request], timeout=seconds)
        finally:
            if not request.done():
                request.cancel()  # the SDK tells the server
                await asyncio.wait([request], timeout=2.0)
        if request.cancelled():
            if seconds is not None and self._client is client:
                raise ToolFailed(f"The MCP server {self.name} did not answer within {seconds:.0f} seconds.")
            raise Unavailable(f"The MCP server {self.name} ended before it answered; the outcome is unknown.")
        error = request.exception()
        if error is None:
            return request.result()
        if isinstance(error, MCPError) and error.error.data == SESSION_LOST:
            if self._client is client:
                self._client = None
                self._restart.set()
            sentence = f"The MCP server {self.name} no longer knows the session; it is being connected to again."
            raise (_Refused if error.error.code == 404 else Unavailable)(sentence) from error
        # Over HTTP the SDK has the same code for the end of a single answer.
        if isinstance(error, MCPError) and error.error.message == "Connection closed":
            if self._client is client:
                self._client = None  # the next call waits for another
                self._restart.set()
            raise Unavailable(f"The MCP server {self.name} ended before it answered; the outcome is unknown.") from error
        raise ToolFailed(f"The MCP server {self.name} refused: {scrubbed(_reason(error))}") from error

    async def _connected(self) -> Client:
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while self._client is None:
                    self._ready.clear()
                    await self._ready.wait()
        if self._client is None:
            why = f": {self._health.problem}" if self._health.problem else ""
            raise Unavailable(f"The MCP server {self.name} is not available{why}.")
        return self._client

    def _calling(self) -> ToolContext | None:
        """Return the call that the server asks about: the one that the request belongs to, or the only one."""
        call = _call.get()
        if call is not None and call in self._calls:
            return call
        return self._calls[0] if len(self._calls) == 1 else None


class _Progress:
    """Shows reports of progress, but not more often than people can read."""

    def __init__(self, call: ToolContext) -> None:
        self._call = call
        self._shown_at = 0.0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Show one report."""
        now = time.monotonic()
        if now - self._shown_at < PROGRESS_SECONDS:
            return
        self._shown_at = now
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._call.progress(f"{share}: {one_visible_line(message, 300)}\n" if message else f"{share}\n")


async def _pages(send: Callable[..., Awaitable[Any]], entries: Callable[[Any], Sequence[T]]) -> list[T]:
    """Return the entries of all pages of a list, as far as they are bounded."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await send(cursor=cursor)
        found += entries(page)
        cursor = page.next_cursor
        if not cursor or len(found) > TOOLS:
            break
    return found


async def _accept(*_: object) -> None:
    """Accept any structured content: the model reads it as text."""


def _json_object(value: Any) -> dict[str, Any]:
    sent: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return sent


def _client_info() -> mcp_types.Implementation:
    return mcp_types.Implementation(name="exuvia", version="0.1.0")


def _cause(error: BaseException | None) -> BaseException | None:
    """Return an error, or the first in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(failure: BaseException | None) -> str:
    """Return the reason in an error, or in the first of a group, as the end of a sentence."""
    error = _cause(failure)
    if isinstance(error, LoginNeeded | ToolFailed):
        return str(error)
    text = one_visible_line(str(error), 400).rstrip(".") if error is not None else "it ended"
    return text or type(error).__name__
