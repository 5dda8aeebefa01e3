"""Facts: small statements that are extracted, distilled and recalled.

distillation    Distillation of daily facts into long-term facts
ended_turns     The text of the ended turns of a session
extraction      Extraction of facts from a turn
fact_book       The state of all facts, reduced from their log
fact_events     The events of the facts' log
fact_export     Export and import of facts as JSON
fact_log        The facts' log: its writer, and the decoding of its lines
fact_recall     Retrieval of facts by the words of a message, and their selection
fact_tools      The `write_memory` tool
facts           The facts of a home
model_answers   Prompt budget, response format and parsing of answers
persons_facts   The facts visible to one person in one chat
retention       Events that enforce the retention limits
scoring         Importance, recall score and similarity of facts
"""
