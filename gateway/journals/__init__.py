"""Read-only access to journals, for the command line and the console.

past_requests  Past requests of a session, rebuilt from its journal.
session_files  The journals of a home: list, find and read them.
"""
