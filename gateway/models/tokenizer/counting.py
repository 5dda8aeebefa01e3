"""Exact token counts with `o200k_base`.

The vocabulary takes 70 MB and half a second to load, during which it holds the interpreter. So it is loaded in a process
that ends with the answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

PATIENCE = 5.0
"""Seconds that an answer may take. Some texts, such as one letter a million times, take far longer."""

CHARACTERS = 4 * 1024 * 1024
"""Characters in total above which nothing is counted."""

_COUNTS = msgspec.json.Decoder(list[int])


def o200k(texts: Sequence[str], *, patience: float = PATIENCE) -> list[int] | None:
    """Return the token count of each text; None if they cannot be counted within `patience` seconds. Blocks its thread."""
    if sum(map(len, texts)) > CHARACTERS:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - a file of ours, by the interpreter that runs this
            [sys.executable, "-I", str(Path(__file__).with_name("worker.py"))],
            input=json.dumps(list(texts)).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=patience,
            check=True,
            start_new_session=True,
        )
        return _COUNTS.decode(done.stdout)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return None
