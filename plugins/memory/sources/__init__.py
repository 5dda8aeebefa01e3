"""The sources of the index: Markdown files and session transcripts.

dialogue     Messages of a session, and their chunks
notes        The sources `notes` and `extra`: Markdown files of the workspace and elsewhere
transcripts  The source `sessions`
watcher      Watching of the notes' folders
"""
