"""The lowest floor: what happened, and what it amounts to. Imports nothing of the floors above.

Values and pure functions:

    errors       this floor's error tree
    messages     what a model is shown
    pictures     what a file is, from its bytes: a picture and its size, a text, or neither
    sight        which files of a conversation a model sees, and what it is told of the others
    events       the vocabulary of the log
    wire         one event ⇄ one line, chained by sums
    growing      an immutable sequence that grows in O(1)
    transcript   what a journal amounts to; folding: how each event changes it; deliveries: answers that
                 channels are owed; with view (what the model is shown of it)
                 and cycle (its compactions)
    recalled     what the memory gave for a message, as the model is shown it
    compaction   when a conversation must be shortened, and where it is cut
    pruning      edits of what the model is shown, and how they meet
    context      one request's messages, paired, and their hash
    tokens       how many tokens a text is, from its length alone; sizing: how many a view has, message by message
    units        what a request holds by kind of text; with calibration (how a model counts) and counts (the next estimate)
    oversize     nothing that cannot be parted takes the window for itself
    admitting    which proposed edits become part of the log
    tally        how many characters a view shows
    receipts     which message ids a key has seen
    lineage      which sessions a key had, in order
    store        the protocols of what keeps the lines
    recorder     numbers, folds, encodes and chains events into a log

What touches the disk:

    journal      a log as one append-only file; with mending (opening for appending), reading, verifying, lines, append_file
    opening      a session from its last checkpoint on; beginnings: whose it is; forking: a copy that goes on by itself
    committer    writes and syncs all journals, off the event loop
    attachments  pictures, files and large tool outputs, by content; owners (whose they are), naming (which a journal
                 names), orphans (those that nobody named go)
    home_lock    one process a home
    disk         what a sync is on each platform
    catalog      sessions, checkpoints, ids; derived; with catalog_file, checkpoints, receipt_batches, seals, survey
    acknowledged how far each session was on the disk, by the catalog at rest
    backwards    the lines of a file, last first
    sqlite       which copy of SQLite is used
"""
