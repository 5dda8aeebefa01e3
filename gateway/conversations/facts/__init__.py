"""The extraction and distillation of facts from conversations.

fact_distillation  Making of daily facts few that stay
fact_extraction    Looking through turns for facts, behind everything else
fact_pauses        Pauses after failures of the work on facts
fact_requests      Asking a model about facts
fact_store         The facts of a home
"""
