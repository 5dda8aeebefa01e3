"""Readers of the files of other programs, for `exuvia import`. They only read, and know nothing of this gateway's files.

Each reader is a function that takes a path and yields `SourceItem` values one by one, so that the memory does not grow with
the source: conversations, notes, facts, schedules, skills, routes, and what is left out with the reason.

chatgpt           The export of ChatGPT: `conversations.json`, or `conversations-000.json` and so on
claude            The export of Claude: `conversations.json`, `memories.json`, `projects.json`
coclaw            The memory of CoClaw
export_files      The files of an export, in a folder or a .zip archive, and the elements of a long JSON array
hermes            The folder of hermes-agent: `state.db` and others
import_values     The values that readers yield
linear_messages   Conversations that are lists of messages, and scheduled jobs
llm_logs          The logs of `llm`: `logs.db`
nanobot           The folder of nanobot
open_webui        The database of Open WebUI
openclaw          The state folder of OpenClaw, of both formats
qwenpaw           The working folder of QwenPaw and CoPaw
source_text       Texts and times as other programs write them
source_workspace  Notes and skills in a workspace
sqlite_copy       A consistent copy of another program's SQLite file
"""
