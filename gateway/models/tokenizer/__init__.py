"""Exact token counts, in a process of their own.

counting  How many tokens texts are, exactly, by `o200k_base`.
worker    What runs in the process
"""
