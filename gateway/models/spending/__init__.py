"""Spending: what requests to models cost, who pays for them, and the log of it.

budgets       Budgets and rates: which requests are admitted.
prices        The prices of models, configured or from `prices.toml`.
report        What was spent in a month, and the forecast.
spending      Charges each request to a model to a person, exactly once.
spending_log  The ledger `HOME/spending-YYYY-MM.jsonl`: one line for each request to a model, and the sums of them.
"""
