"""Tests of the tools that run commands."""
