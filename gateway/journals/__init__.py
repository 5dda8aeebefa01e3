"""Journals read as files, for the command line and the console.

past_requests  Past requests of a session, rebuilt from its journal
session_files  The journals of a home, read as files
"""
