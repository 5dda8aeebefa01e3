"""Formatting that several channels share.

markdown_pieces  Splitting Markdown into pieces that fit a service's posts.
"""
