"""The status of the whole gateway.

channel_reports  What the gateway reports about channels.
cluster_status   The state of the gateways that share a database.
instruments      The sources of `/metrics` and `/status.json`.
last_hour        Samples of the last hour, for the console's plots.
overview         The overview that `/status.json` and `exuvia status` show.
problems         The readiness of the gateway, and its current problems.
"""
