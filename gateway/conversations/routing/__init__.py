"""Which session a message belongs to, and the lifetime of open sessions.

chat             A chat
conversation     The conversation
session_indexer  How sessions stand, told to the catalog behind the conversations
switchboard      The switchboard
"""
