"""Helpers for embedding texts: splitting long texts and checking vectors.

text_splitting  How texts are laid out over requests
vector_checks   Whether what a server gives as vectors are some
"""
