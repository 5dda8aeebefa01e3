"""Attachments: files stored by content hash beside the journals.

attachment_refs  References to attachments in a journal
owners           Owners of attachments
row_attachments  The attachments in PostgreSQL
store            The attachment store, and the removal of unused attachments
"""
