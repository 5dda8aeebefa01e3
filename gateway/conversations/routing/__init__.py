"""The routing of messages to sessions, and the lifetime of open sessions.

chat             One person's key, its current session and earlier ones.
conversation     One open session: its two coroutines.
session_indexer  The state of sessions in the catalog.
switchboard      Routes messages, and opens and closes conversations.
"""
