"""Approvals: which tool calls run, which are refused, and which a person is asked about.

`policy` decides about one call from the configuration and the remembered rules; `remembered_rules` is the log of what people
approved always; `gate` applies the policy to the calls of a turn; `open_questions` finds the questions of all sessions
and says who may answer them. Every tool call passes the gate before its `tool_called`,
and nothing else runs tools.

A question is an event, `approval_asked`, and so is its answer. Meanwhile the turn is parked: its task has ended, and the
conversation continues it after the answer, before or after a restart.
"""
