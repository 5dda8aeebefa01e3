"""Exact token counts, in a separate process.

counting  Exact token counts with `o200k_base`.
worker    The program of the separate process.
"""
