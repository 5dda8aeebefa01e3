"""Exact token counts with `o200k_base`.

The vocabulary takes 70 MB and half a second to load, during which it holds the interpreter. So it is loaded in a process
that ends with the answer: this file as a script, which imports nothing of Exuvia. tiktoken itself would download the
vocabulary; it is in a file beside this one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import tiktoken

PATIENCE = 5.0
"""Seconds that an answer may take. Some texts, such as one letter a million times, take far longer."""

CHARACTERS = 4 * 1024 * 1024
"""Characters in total above which nothing is counted."""

VOCABULARY = Path(__file__).with_name("o200k_base.tiktoken.xz")

DIGEST = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

_COUNTS = msgspec.json.Decoder(list[int])


def o200k(texts: Sequence[str], *, patience: float = PATIENCE) -> list[int] | None:
    """Return the token count of each text; None if they cannot be counted within `patience` seconds. Blocks its thread."""
    if sum(map(len, texts)) > CHARACTERS:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - a file of ours, by the interpreter that runs this
            [sys.executable, "-I", __file__],
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


def encoding() -> tiktoken.Encoding:
    """Return `o200k_base` from the file beside this one. Raises ValueError if its checksum differs."""
    import tiktoken  # noqa: PLC0415 - only in the separate process
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # noqa: PLC0415

    packed = lzma.decompress(VOCABULARY.read_bytes())
    if hashlib.sha256(packed).hexdigest() != DIGEST:
        raise ValueError(f"{VOCABULARY.name} is damaged: its checksum is wrong")
    pieces = (line.split() for line in packed.splitlines() if line)
    ranks = {base64.b64decode(piece): int(rank) for piece, rank in pieces}
    # The rest of the definition is tiktoken's own; only the download is replaced.
    openai_public.load_tiktoken_bpe = lambda *_address, **_digest: ranks
    return tiktoken.Encoding(**openai_public.o200k_base())


def main() -> None:
    """Read a JSON array of texts from standard input, and write the array of their token counts."""
    texts = json.load(sys.stdin.buffer)
    tokenizer = encoding()
    json.dump([len(tokenizer.encode_ordinary(text)) for text in texts], sys.stdout)


if __name__ == "__main__":
    main()
