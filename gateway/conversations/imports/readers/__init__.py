"""Readers of the files of other programs, for `exuvia import`. They only read, and know nothing of this gateway's files.

Each reader is a function that takes a path and yields `SourceItem` values one by one, so that the memory does not grow with
the source: conversations, notes, facts, schedules, skills, routes, and what is left out with the reason.

chatgpt           The export of ChatGPT: `conversations.json`, or `conversations-000.json` and so on
claude            The export of Claude: `conversations.json`, `memories.json`, `projects.json`
export_files      The files of an export, in a folder or a .zip archive, and the elements of a long JSON array
import_values     The values that readers yield
llm_logs          The logs of `llm`: `logs.db`
programs          The reader of each program
source_text       Texts and times as other programs write them
source_workspace  Notes and skills in a workspace
sqlite_copy       A consistent copy of another program's SQLite file
"""
