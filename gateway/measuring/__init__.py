"""How the gateway is, for people and for Prometheus.

readiness, troubles         whether messages are taken; what else is not well
overview, status_command    `/status.json`, and `exuvia status`, which prints it
metrics, instruments        `/metrics`: its form; what is read for it
figures, session_meter      what is counted; what reads a session along to count it
last_hour                   the same as a ring of samples
loop_lag, own_process       how late the event loop is; what the system says of this process
"""
