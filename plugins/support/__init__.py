"""Modules that every package of `plugins` may use.

addresses      Validating addresses in the configuration.
errors         The exceptions that a plugin may raise.
fencing        Quoting a conversation as data in a prompt.
file_watcher   Watching folders for changes.
http_errors    Reading HTTP error responses.
lenient_json   Tolerant JSON decoding.
safe_open      Opening files inside a folder without following links.
secrets        Values that are never printed, and removing them from texts.
state_file     A small JSON file that is replaced durably.
suggestions    Suggestions for misspelled names.
task_leaks     Cancelling tasks that a plugin leaves running.
text/          Words, stems and sentences in any script.
untrusted      Calling third-party code.
vector_checks  Validating and normalizing vectors.
workspace      Which person owns which file of the workspace.
"""
