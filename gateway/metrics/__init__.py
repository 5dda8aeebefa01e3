"""Counters and measurements of the running process.

counters       The counters and histograms of a gateway.
process        The lag of the event loop, and figures from the operating system.
prometheus     Counters, histograms and Prometheus' text format.
session_meter  Metrics of one session, derived from its events.
"""
