"""Notes that the gateway writes into the workspace.

appending         Appends a text to a note once and in one piece.
day_notes         The notes of each day.
explicit_memory   Requests to remember something, for a model without tools.
index_trigger     Triggers the indexing of journals.
memory_writer     Writes what a person wants remembered.
pending_notes     Sections that the log promises and the notes lack.
workspace_memory  The memory of a home's workspace.
"""
