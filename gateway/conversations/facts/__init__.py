"""The extraction and distillation of facts from conversations.

fact_distillation  The distillation of daily facts into a few lasting ones.
fact_extraction    The extraction of facts from ended turns.
fact_requests      Model requests about facts, and the pauses after failures.
fact_store         The facts of a home.
"""
