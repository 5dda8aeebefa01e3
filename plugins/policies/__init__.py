"""The built-in pruning, summarizers and memory flush.

budgeted_page       A page of a summary that fills up line by line, within so many tokens.
chunked_requests    Asking a model about a record that may be longer than what it takes in
extract             The extract
extract_sentences   What an extract is made of
identifier_ranking  Which identifiers of what was said matter most.
identifiers         What must be kept letter by letter
memory_flush        The built-in flush
model_summary       The built-in summarizer
registrations       The built-in summarizers and the flush as they are registered.
silent_reply        The silent answer
summary_checks      Whether a text is the summary that was asked for.
summary_prompts     What a model is told when it is to write a summary, to merge several, or to mend one.
summary_sections    The form of a summary
tool_pruning        The built-in pruning
"""
