"""Counters and measurements of the running process.

counters       What the gateway counts of itself while it runs.
loop_lag       How late the event loop is
process        What the operating system says of this process.
prometheus     Counters and histograms, and the text in which Prometheus reads them.
readiness      Whether the gateway takes messages, and if not, why.
session_meter  The session meter
"""
