"""Every backend keeps the contract, and the answers of all are the same."""

from __future__ import annotations

import pytest

from plugins.conformance.memory_backend import MemoryBackendConformance
from plugins.memory.backends.chroma import ChromaBackend
from plugins.memory.backends.local import LocalBackend
from plugins.memory.index import MemoryIndex


class TestSQLite(MemoryBackendConformance):
    backend = MemoryIndex


class TestLocal(MemoryBackendConformance):
    backend = LocalBackend


@pytest.mark.skipif(bool(ChromaBackend.why_not()), reason="chromadb is not installed: `make test-backends` does that")
class TestChroma(MemoryBackendConformance):
    backend = ChromaBackend
