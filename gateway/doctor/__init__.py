"""The checks of `exuvia doctor`.

config_check    Every fault of a configuration
findings        Findings, and the context of a check
home_checks     Checks of the home: permissions, token, journals, index, clock
machine_checks  Checks of the machine: limits, disk, file system, service
memory_checks   Checks of the memory backend and the embedding provider
model_checks    Checks of models, providers and keys
network_checks  Checks of the gateway's address
"""
