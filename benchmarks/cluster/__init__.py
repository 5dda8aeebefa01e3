"""Several gateways on one PostgreSQL with a synchronous standby: servers, faults, and a checker of what clients were told.

postgres_programs  PostgreSQL from a wheel, as one process tree
postgres_pair      A primary and its standby, with failover
tcp_proxy          Links that can be cut
namespaces         A check that traffic stays on this machine
gateways           The gateways and their links
effect_tool        The plugin whose effects are counted
persons            Clients that do not give up
history            What clients saw, and what the database holds
checker            Which promises a history breaks
faults             What happens to a cluster
run                Persons and faults together, and the check
balancer           HAProxy, or a small balancer of our own
demonstration      `make cluster`
cluster_speed      Time to `accepted`, and throughput
measured           The benchmark `cluster`
"""
