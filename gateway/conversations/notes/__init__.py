"""Notes that the gateway writes into the workspace.

appending         Appends a text to a note once and in one piece.
day_notes         The notes of each day, and the sections that are still to be written.
memory_writer     Writes what a person wants remembered.
workspace_memory  The memory of a home's workspace, and what triggers its indexing.
"""
