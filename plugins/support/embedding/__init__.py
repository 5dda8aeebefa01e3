"""Helpers for embedding providers.

text_splitting  Splitting texts into batches and pieces.
vector_checks   Validating and normalizing vectors.
"""
