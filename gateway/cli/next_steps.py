"""What to type next: the exact commands with which a person, or a websocket client, talks to the gateway of a home.

`make run` prints it before the gateway starts: `python -m gateway.cli.next_steps [--home …] [--host …]`, with the options of
`exuvia run`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.config.keys import Config, load_config
from gateway.support.errors import ConfigRefused
from gateway.support.home import Home

_STEPS = """\
Exuvia will answer on {url} as soon as it says "ready". In another terminal:

  talk to it           {chat}
  ask once, in a pipe  echo hello | {chat} --once

Or over a websocket (the protocol: docs/websocket.md); this asks once and prints every frame of the answer:

{python} - <<'END'
import asyncio, {modules}aiohttp, uuid
async def main():
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect({url!r}, headers={{"Authorization": "Bearer " + {token}}}) as ws:
            await ws.send_json({{"type": "send", "id": str(uuid.uuid4()), "session": "main", "text": "hello"}})
            async for frame in ws:
                print(frame.data)
                if '"turn_ended"' in frame.data:
                    break
asyncio.run(main())
END
"""


def next_steps(home: Home, config: Config, *, options: Sequence[str] = ()) -> str:
    """The text for people. `options` are those that `exuvia chat` needs to find this gateway."""
    programs = Path(os.path.relpath(sys.executable)).parent
    usual = config.gateway.token is None
    steps = _STEPS.format(
        url=_url(config),
        chat=shlex.join([str(programs / "exuvia"), "chat", *options]),
        python=shlex.quote(str(programs / "python")),
        modules="" if usual else "os, ",
        token=f"open({str(home.token)!r}).read().strip()" if usual else 'os.environ["EXUVIA_TOKEN"]',
    )
    return steps if usual else f"{steps}\nThe token was set by you: EXUVIA_TOKEN must hold it in that terminal too.\n"


def main(arguments: Sequence[str]) -> None:
    """Print the steps for a gateway that is started with these arguments. A configuration that is refused prints nothing:
    the gateway says it in a moment."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given, _ = parser.parse_known_args(arguments)
    home = Home.resolve(given.home, os.environ)
    named = {key: value for key in ("host", "port") if (value := getattr(given, key)) is not None}
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("EXUVIA_")}
    try:
        config = load_config(given.config or home.config, environment=os.environ, overrides={"gateway": named})
        seen_from_elsewhere = load_config(home.config, environment=elsewhere, overrides={})
    except ConfigRefused:
        return
    options = [f"--home={home.root}"] if home != Home.resolve(None, elsewhere) else []
    if _url(seen_from_elsewhere) != _url(config):
        options.append(f"--url={_url(config)}")
    sys.stdout.write(next_steps(home, config, options=options))


def _url(config: Config) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.gateway.host, config.gateway.host).strip("[]")  # noqa: S104
    return f"ws://{f'[{host}]' if ':' in host else host}:{config.gateway.port}/ws"


if __name__ == "__main__":
    main(sys.argv[1:])
