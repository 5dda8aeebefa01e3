"""What every package of `plugins` may use: errors, secrets, text, safe file access.

addresses      Addresses that a configuration names
bounded_cache  A cache of what short texts amount to, whose memory is bounded however long the texts are.
embedding/     Helpers for embedding texts: splitting long texts and checking vectors.
errors         What a plugin may raise, as one small tree.
fencing        What leaves, as data that a model is asked about
file_watcher   Changes below folders, as watchfiles tells of them.
http_errors    What a server says when it refuses
lenient_json   JSON as servers and models write it
safe_open      Opening what lies beneath a folder, and nothing else, whatever somebody does to the folder meanwhile.
secrets        `Secret`
suggestions    Names that a person may have meant by one that does not exist.
task_leaks     Tasks that a stranger's code begins and leaves behind when its call is over
text/          Words, stems and sentences of a text, in any script.
untrusted      Calling code that may raise anything, or never return
workspace      Whose the files of the workspace are, and who may read and change them.
"""
