"""Any embedding model as a GGUF file, which `memory.embedding.local_model_path` names, run by llama.cpp in a subprocess."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from plugins.providers.hosted.known_models import known_model
from plugins.providers.local import bundled_model as local_model
from plugins.providers.local.in_process import ModelInProcess
from plugins.providers.local.process import Load
from plugins.support.errors import SettingsRefused

LONGEST = 1024
"""Tokens of a text that are read at once; longer ones are read in pieces. The memory for it is taken at the start."""

HEADER = 1 << 20
"""Bytes of a file in which what it says of itself is looked for; the vocabulary, which is long, comes after."""

_MAGIC = b"GGUF"
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_POOLED = (1, 2, 3)
"""By mean, by the first token, by the last; 0 is not at all, 4 is for ranking pairs of texts."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a GGUF file says of its model: how long its vectors are, how many tokens it reads (0: it does not say), and how
    it makes one vector of a text (None: it does not say, as chat models do)."""

    dimensions: int
    window: int
    pooling: int | None


def gguf_model(path: str, environment: Mapping[str, str]) -> ModelInProcess:
    """What runs the model of a file. Raises SettingsRefused for a path that is relative to nobody knows what."""
    file = Path(path).expanduser()
    if not file.is_absolute():
        raise SettingsRefused(f"memory.embedding.local_model_path must begin with `/` or `~`: {path}")
    described = GgufModel(file)
    prefixes = known_model("local", file.stem)
    return ModelInProcess(
        name=file.stem.lower(),
        dimensions=lambda: header.dimensions if (header := described.header()) else 0,
        missing=described.missing,
        load=lambda: Load(model=str(file), window=described.window(), threads=None, embeds=True),
        environment=environment,
        before=prefixes.before,
    )


class GgufModel:
    """A model file, read again when it is another one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: tuple[tuple[int, int, int], Header | None] | None = None

    def header(self) -> Header | None:
        """What it says of its model; None where there is no such file, or it is none in this format."""
        try:
            state = os.stat(self._file)
            stamp = (state.st_ino, state.st_size, state.st_mtime_ns)
            if self._read is None or self._read[0] != stamp:
                self._read = stamp, read_header(self._file)
        except OSError:
            return None
        return self._read[1]

    def window(self) -> int:
        """How many tokens are read at once."""
        header = self.header()
        return min(LONGEST, header.window) if header and header.window else LONGEST

    def missing(self) -> str | None:
        """Why the model cannot be used, as the end of a sentence; None where it can."""
        file = f"memory.embedding.local_model_path is {self._file}"
        if not self._file.is_file():
            return f"{file}, and there is no such file"
        header = self.header()
        if header is None:
            return f"{file}, which is no GGUF file"
        if header.pooling not in _POOLED:
            return f"{file}, which is a chat model and makes no vectors of texts"
        if not local_model.runtime_installed():
            return f"the library that runs it is not installed ({local_model.HOW_TO_INSTALL})"
        return None


def read_header(file: Path) -> Header | None:
    """The description at the beginning of a file, None if it is none in this format. The format:
    https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Raises OSError."""
    with file.open("rb") as source:
        beginning = source.read(HEADER)
    if not beginning.startswith(_MAGIC):
        return None
    fields = dict(_fields(BytesIO(beginning)))
    kind = fields.get("general.architecture")

    def number(key: str) -> int | None:
        value = fields.get(f"{kind}.{key}")
        return value if isinstance(value, int) else None

    return Header(
        dimensions=number("embedding_length") or 0, window=number("context_length") or 0, pooling=number("pooling_type")
    )


def _fields(source: BinaryIO) -> Iterator[tuple[str, str | float | None]]:
    """The fields up to the vocabulary, or to the end of what was read."""
    try:
        source.seek(len(_MAGIC) + 4 + 8)  # the version, the number of tensors
        for _ in range(_number(source, "<Q")):
            key = _string(source)
            if key.startswith("tokenizer."):
                return
            yield key, _value(source, _number(source, "<I"))
    except (struct.error, UnicodeDecodeError, KeyError, RecursionError):
        return


def _value(source: BinaryIO, kind: int) -> str | float | None:
    if kind == _STRING:
        return _string(source)
    if kind == _ARRAY:
        kind, count = _number(source, "<I"), _number(source, "<Q")
        for _ in range(min(count, HEADER)):
            _value(source, kind)
        return None
    value: float = _number(source, _NUMBERS[kind])
    return value


def _string(source: BinaryIO) -> str:
    length = _number(source, "<Q")
    return source.read(min(length, HEADER)).decode()


def _number(source: BinaryIO, form: str) -> Any:
    return struct.unpack(form, source.read(struct.calcsize(form)))[0]
