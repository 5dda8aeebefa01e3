"""The program of the separate process: reads a JSON array of texts from standard input, writes a JSON array of token
counts.

It runs as a script and imports nothing of Exuvia. The vocabulary is in a file beside it; tiktoken itself would download it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import sys
from pathlib import Path

import tiktoken
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

VOCABULARY = Path(__file__).with_name("o200k_base.tiktoken.xz")

DIGEST = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def encoding() -> tiktoken.Encoding:
    """Return `o200k_base` from the file beside this one. Raises ValueError if its checksum differs."""
    packed = lzma.decompress(VOCABULARY.read_bytes())
    if hashlib.sha256(packed).hexdigest() != DIGEST:
        raise ValueError(f"{VOCABULARY.name} is not the vocabulary that it should be")
    pieces = (line.split() for line in packed.splitlines() if line)
    ranks = {base64.b64decode(piece): int(rank) for piece, rank in pieces}
    # The rest of the definition is tiktoken's own; only where it would reach for the network it finds what is here.
    openai_public.load_tiktoken_bpe = lambda *_address, **_digest: ranks
    return tiktoken.Encoding(**openai_public.o200k_base())


def main() -> None:
    """Count the tokens of the texts on standard input."""
    texts = json.load(sys.stdin.buffer)
    tokenizer = encoding()
    json.dump([len(tokenizer.encode_ordinary(text)) for text in texts], sys.stdout)


if __name__ == "__main__":
    main()
