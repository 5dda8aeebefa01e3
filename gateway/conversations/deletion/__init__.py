"""The deletion of conversations.

deletion_log      The log of deletions, and finishing one before the catalog is opened.
deletions         Removes everything that a conversation has left.
journal_findings  What a journal says about other places that hold something of its conversation.
"""
