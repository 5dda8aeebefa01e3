"""Schedules: messages that the gateway puts into a conversation at set times.

recurrence   When a schedule is due.
parsing      Times as people write them.
schedules    The log `HOME/schedules.jsonl` and its state.
scheduler    Hands due messages to their conversations, exactly once.
"""
