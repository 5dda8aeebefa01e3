"""The erasure of messages, sessions and persons: content is removed from everywhere, and the chains are computed again.

derived_data     Purges the indexes
erasure_plan     What an erasure reaches in the journals
erasures         Orders erasures durably, and carries them out
fact_lines       Erases facts from the lines of their log
note_sections    Erases from notes
other_logs       Erases from the logs that are neither journals nor facts
text_scrubbing   Removes exact texts from lines of logs
tombstones       What remains of an event whose content was erased
"""
