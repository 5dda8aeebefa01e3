"""The checks of `exuvia doctor`.

channel_checks   Checks of channels: whether each can log in
config_check     Every fault of a configuration
findings         Findings, and the context of a check
home_checks      Checks of the home: permissions, token, journals, index, clock
machine_checks   Checks of the machine: limits, disk, file system, service, address
provider_checks  Checks of models, providers, keys, the memory's backend and the search service
store_checks     Checks of the database that has the logs
"""
