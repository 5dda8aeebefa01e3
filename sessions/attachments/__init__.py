"""Attachments: files stored by content hash beside the journals.

attachment_refs  References to attachments in a journal
gc               Garbage collection of unused attachments
owners           Owners of attachments
store            The attachment store
"""
