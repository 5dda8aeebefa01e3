"""Facts: values, events, errors and settings.

fact_errors    Errors of the facts.
fact_events    Events of the facts log.
fact_settings  The `[memory.facts]` section of the configuration.
fact_values    Facts, and the validation of their fields.
"""
