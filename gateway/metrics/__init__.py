"""Counters and measurements of the running process.

counters       The counters and histograms of a gateway.
loop_lag       The lag of the event loop.
process        Process figures from the operating system.
prometheus     Counters, histograms and Prometheus' text format.
readiness      The readiness of the gateway to take messages.
session_meter  Metrics of one session, derived from its events.
"""
