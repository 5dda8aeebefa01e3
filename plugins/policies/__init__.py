"""The built-in pruning, summarizers and memory flush.

budgeted_page      Sections of a summary filled up to a token budget
chunked_requests   Model requests about a record in chunks that fit the context window
extract            The extractive summarizer, which uses no model
extract_sentences  The sentences and ranked identifiers that an extract is built from
identifiers        Detection of identifiers
languages/         The prompts that models are sent, one file per language
memory_flush       The built-in memory flush
model_summary      The built-in summarizer, which asks a model
silent_reply       Detection of the silent reply
summary_checks     Validation of a summary
summary_sections   The sections of a summary
tool_pruning       The built-in pruning of tool results
"""
