"""Notes that the gateway writes into the workspace.

appending         Text that is appended to a note once and whole, while people write in the same file.
day_notes         The day's note
explicit_memory   What a person asks to be remembered, written down for a model that has no tool to do it.
index_trigger     Has the memory look at the journals when that may be worth it
memory_writer     What a person wants remembered is written at once
pending_notes     Sections that the log owes the notes
workspace_memory  The memory of a home's workspace, opened for the gateway or for the command line.
"""
