"""Tests that everybody who provides a thing can inherit, so that his does what the house relies on.

memory_backend   a `MemoryBackend`
"""
