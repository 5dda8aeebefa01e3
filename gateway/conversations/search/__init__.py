"""Full-text search over the messages and answers of conversations.

conversation_search  Searches for people: keeps the index up to date, at the first search and whenever one follows.
message_index        The index, in a SQLite file that may be deleted at any time.
"""
