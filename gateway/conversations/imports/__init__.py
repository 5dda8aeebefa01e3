"""The import of what other programs hold, which `gateway.conversations.imports.readers` reads.

branches          The branches of a conversation, and what of each is already here
import_files      The files of imported messages
import_log        Where imported conversations are in the home, and which were deleted
import_report     What came, what was there already, and what is left out
import_service    Imports conversations, facts and schedules, or says what an import would do
journal_import    Writes imported conversations into journals
programs          The reader of each program
readers/          The readers of the files of other programs
workspace_import  Writes imported notes and skills into a workspace
"""
