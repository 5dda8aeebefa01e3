"""The sources of the index: notes, extra notes and session transcripts.

dialogue        Messages of a session, and their chunks
excerpts        Excerpts of a session as text
extra_notes     The source `extra`
markdown_files  Markdown files below a folder
notes           The source `notes`
transcripts     The source `sessions`
watcher         Watching of the notes' folders for changes
"""
