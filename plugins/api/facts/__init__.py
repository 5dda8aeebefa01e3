"""Values of the facts: facts, their events, errors and settings.

fact_errors    What can go wrong with facts.
fact_events    What happens to facts, in the past tense.
fact_settings  How facts are kept
fact_values    A fact
"""
