"""Schedules: messages that the gateway puts into a conversation at set times.

calendar       The next occurrences, day by day.
heartbeat      Wakes the model at an interval, within active hours.
parsing        Times as people write them.
proposals      Rules that the model proposes for a person's own words.
recurrence     When a schedule is due.
schedule_tool  The model's tool, whose calls a person approves.
scheduler      Hands due messages to their conversations, exactly once.
schedules      The log `HOME/schedules.jsonl` and its state.
"""
