"""Markdown on a terminal.

answer              Incremental rendering of a streamed answer
markdown_parser     The Markdown parser, and the splitting of incomplete text into blocks
markdown_rendering  Markdown to terminal output
"""
