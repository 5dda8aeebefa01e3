"""Pictures on terminals that can show them.

picture_encoding   Pictures as escape sequences of the three protocols
shown_pictures     The files of events: captions, and pictures that are fetched and encoded
terminal_graphics  What the terminal can show, by its own answers
"""
