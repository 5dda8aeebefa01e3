"""Facts: small statements that are extracted, distilled and recalled.

distillation    How daily facts become few that stay
ended_turns     What was said in turns that have ended, out of a session's events.
extraction      What a model is asked to find in a turn, and what of its answer becomes facts.
fact_book       The book of facts
fact_codec      One event of the facts ⇄ one line, in the form of all logs of the house (`sessions.events.codec`).
fact_export     Facts as one JSON document, to take them elsewhere and to bring them back.
fact_log        The writing hand of the facts' log
fact_recall     Which facts answer a message
fact_selection  What of the facts is worth a place behind a person's message.
fact_tools      `write_memory`
facts           The facts of a home
model_answers   Requests about facts
persons_facts   The facts as one person sees them in one chat
retention       What has to leave the book, as events that say so.
scoring         What facts are worth now, and which say the same.
"""
