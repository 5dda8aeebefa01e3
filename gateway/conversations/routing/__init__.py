"""The routing of messages to sessions, and the lifetime of open sessions.

chat                 One key that is open: its current session and earlier ones.
child_tools          The tools of a subagent.
conversation         One open session: its two coroutines.
conversation_list    Lists of conversations, and trees of forks.
conversation_runner  Begins, runs and closes conversations, and records their state in the catalog.
forks                The creation of forks.
live_sessions        All sessions up to their last durable event.
person_erasure       Erases persons.
removals             Deletes and erases conversations.
session_updates      Updates of a person's list of conversations.
spawn_tool           The tool `spawn`.
subagents            Subagents: conversations that work on a task of another one.
switchboard          Finds the chat of a message, opens it, and unloads it.
"""
