"""The sources of the index: notes, extra notes and session transcripts.

dialogue        What was said in a session, out of its events, and the chunks of it that are found.
excerpts        Some of a session as it is read
extra_notes     The source `extra`
markdown_files  Markdown files in a folder
notes           The source `notes`
transcripts     The source `sessions`
watcher         Notices that notes changed, from the system's own reports
"""
