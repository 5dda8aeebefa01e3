"""The configuration: its keys, sources, validation and reloading.

approval_rules     The rules of approvals, and what they match
keys               Every key, its type and default
reloading          Hot reload
rendering          The configuration as TOML and JSON, without secrets
secret_references  References to secrets (`env:`, `file:`, `credential:`)
settings           The configuration in force
sources            The file, the environment and the command line, merged
validation         Validation of values against the schema
"""
