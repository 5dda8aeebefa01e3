"""The deletion of conversations.

deletion_log      The log of deletions, and finishing one before the catalog is opened.
deletions         Removes everything that a conversation has left.
journal_findings  The plan of a deletion, and what the journals say about other places.
"""
