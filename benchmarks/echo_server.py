"""A bare aiohttp websocket server that echoes every frame: a lower bound for any gateway on aiohttp.

`python -m benchmarks.echo_server` prints its port and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import WSMsgType, web


async def echo(request: web.Request) -> web.WebSocketResponse:
    """Echo text frames until the client disconnects."""
    socket = web.WebSocketResponse(compress=False)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


async def serve() -> None:
    """Listen on a free loopback port and print it."""
    app = web.Application()
    app.router.add_get("/ws", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
