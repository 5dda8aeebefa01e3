"""The memory that a kind of channel needs beyond a gateway without it and the libraries of its service.

    python -m tests.channels.footprint KIND [URL]

prints, as JSON, the bytes of its objects after the import or, with the URL of a homeserver for Matrix, of an open and idle
channel; and the megabytes by which the process itself has grown, which include what the measurement needs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from plugins.host.loading import load_plugins
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context

GATEWAY = ("gateway.wiring.daemon", "markdown_it", "sqlite3", "ssl")
LIBRARIES = {
    "email": ("aiosmtplib",),
    "matrix": ("vodozemac", "cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography.hazmat.primitives.ciphers"),
}


def main(kind: str, url: str = "") -> None:
    """Measure a kind of channel and print the result."""
    for name in (*GATEWAY, *LIBRARIES.get(kind, ())):
        import_module(name)
    load_plugins(())
    tracemalloc.start()
    if url:
        found = asyncio.run(_opened(url))
    else:
        before = _now()
        import_module(f"plugins.channels.{kind}.{kind}_channel")
        found = _grown(before)
    print(json.dumps(found))  # noqa: T201


async def _opened(url: str) -> dict[str, float]:
    """Return what an open channel without messages needs, beyond an HTTP client that has sent a request."""
    with tempfile.TemporaryDirectory() as folder:
        async with make_context(Path(folder)) as context:
            await context.transport.send("GET", f"{url}/_matrix/client/versions", headers={}, body=b"")
            before = _now()
            module: Any = import_module("plugins.channels.matrix.matrix_channel")
            settings = module.MatrixSettings(homeserver=url, user="bot", password=Secret("a password"))
            async with module.MatrixChannel(msgspec.structs.replace(context, settings=settings)) as channel:
                running = asyncio.create_task(channel.run(RecordingInbox()))
                async with asyncio.timeout(60):
                    while channel._is_first:  # no response yet
                        await asyncio.sleep(0.01)
                grown = _grown(before)
                running.cancel()
                await asyncio.wait([running])
    return grown


def _now() -> tuple[int, float]:
    """Return the bytes that Python's objects need, and the megabytes that only this process has."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return tracemalloc.get_traced_memory()[0], private / 1024


def _grown(before: tuple[int, float]) -> dict[str, float]:
    objects, private = _now()
    return {"bytes": objects - before[0], "process_megabytes": round(private - before[1], 1)}


if __name__ == "__main__":
    main(*sys.argv[1:])
