"""Imports from other programs."""
