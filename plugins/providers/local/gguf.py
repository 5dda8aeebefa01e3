"""Embedding models as GGUF files (`memory.embedding.local_model_path`), run by llama.cpp in a subprocess."""

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

MAX_TOKENS = 1024
"""Maximum tokens that are embedded at once; longer texts are split. The memory for them is allocated at the start."""

HEADER_BYTES = 1 << 20
"""The number of bytes that are searched for metadata; the vocabulary, which is long, comes after."""

_MAGIC = b"GGUF"
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_POOLING_TYPES = (1, 2, 3)
"""The pooling types mean, first token and last token; 0 is none, 4 ranks pairs of texts."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a GGUF file: the length of its vectors, its window in tokens (0 if missing), and its pooling type
    (None if missing, as in chat models)."""

    dimensions: int
    window: int
    pooling: int | None


def gguf_model(path: str, environment: Mapping[str, str]) -> ModelInProcess:
    """Return the runtime of a model file. Raises SettingsRefused for a relative path."""
    file = Path(path).expanduser()
    if not file.is_absolute():
        raise SettingsRefused(f"memory.embedding.local_model_path must begin with `/` or `~`: {path}")
    model_file = GgufModel(file)
    known = known_model("local", file.stem)
    return ModelInProcess(
        name=file.stem.lower(),
        dimensions=lambda: header.dimensions if (header := model_file.header()) else 0,
        missing=model_file.missing,
        load=lambda: Load(model=str(file), window=model_file.window(), threads=None, embeds=True),
        environment=environment,
        prefix=known.prefix,
    )


class GgufModel:
    """A model file; its metadata is read again when the file changes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: tuple[tuple[int, int, int], Header | None] | None = None

    def header(self) -> Header | None:
        """Return its metadata; None if there is no such file or it has another format."""
        try:
            state = os.stat(self._file)
            stamp = (state.st_ino, state.st_size, state.st_mtime_ns)
            if self._read is None or self._read[0] != stamp:
                self._read = stamp, read_header(self._file)
        except OSError:
            return None
        return self._read[1]

    def window(self) -> int:
        """Return how many tokens are embedded at once."""
        header = self.header()
        return min(MAX_TOKENS, header.window) if header and header.window else MAX_TOKENS

    def missing(self) -> str | None:
        """Return why the model cannot be used, as the end of a sentence; None if it can."""
        file = f"memory.embedding.local_model_path is {self._file}"
        if not self._file.is_file():
            return f"{file}, which does not exist"
        header = self.header()
        if header is None:
            return f"{file}, which is not a GGUF file"
        if header.pooling not in _POOLING_TYPES:
            return f"{file}, which is a chat model, not an embedding model"
        if not local_model.runtime_installed():
            return f"the library that runs it is not installed ({local_model.HOW_TO_INSTALL})"
        return None


def read_header(file: Path) -> Header | None:
    """Return the metadata at the start of a file; None if it has another format. Format:
    https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Raises OSError."""
    with file.open("rb") as source:
        start = source.read(HEADER_BYTES)
    if not start.startswith(_MAGIC):
        return None
    fields = dict(_fields(BytesIO(start)))
    kind = fields.get("general.architecture")

    def number(key: str) -> int | None:
        value = fields.get(f"{kind}.{key}")
        return value if isinstance(value, int) else None

    return Header(
        dimensions=number("embedding_length") or 0, window=number("context_length") or 0, pooling=number("pooling_type")
    )


def _fields(source: BinaryIO) -> Iterator[tuple[str, str | float | None]]:
    """Yield the fields before the vocabulary, or to the end of what was read."""
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
        for _ in range(min(count, HEADER_BYTES)):
            _value(source, kind)
        return None
    value: float = _number(source, _NUMBERS[kind])
    return value


def _string(source: BinaryIO) -> str:
    length = _number(source, "<Q")
    return source.read(min(length, HEADER_BYTES)).decode()


def _number(source: BinaryIO, form: str) -> Any:
    return struct.unpack(form, source.read(struct.calcsize(form)))[0]
