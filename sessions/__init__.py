"""The lowest floor: what happened, and what it amounts to.

Values and pure functions, except for `journal`, `committer` and `catalog`, which alone touch the disk. Imports nothing of
the floors above.

    errors       this floor's error tree
    messages     what a model is shown
    events       the vocabulary of the log
    wire         one event ⇄ one line, chained by sums
    growing      an immutable sequence that grows in O(1)
    transcript   the fold of a session's events
    receipts     which message ids a key has seen
    context      one request's messages, paired, and their hash
    store        the protocols of what keeps the lines
    recorder     numbers, folds, encodes and chains events into a log
    journal      a log as one append-only file
    committer    writes and syncs all journals, off the event loop
    catalog      which sessions a key had; checkpoints; derived
"""
