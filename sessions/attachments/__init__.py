"""Attachments: files kept by content hash beside the journals.

attachment_refs  Which attachments a journal names
gc               Orphans
owners           Whose an attachment is
store            Attachments
"""
