"""The configuration: its keys, sources, validation and reloading.

agents             `[agent]` and `[agents.NAME]`, and what an agent inherits
approval_rules     The rules of approvals, and what they match
config_report      Every key with its sentence, value and source
config_writing     Durable writes of the file and of secrets
documented_keys    The shipped example: the sentence of each key
key_kinds          The types of keys as data
keys               Every key, its type and default
reloading          Hot reload
rendering          The configuration as TOML and JSON, without secrets
routes             `[[routes]]`: which agent answers in a new session
secret_references  References to secrets (`env:`, `file:`, `credential:`)
settings           The configuration in force
sources            The file, the environment and the command line, merged
toml_editing       Changes of single keys in a text, which keep its comments
validation         Validation of values against the schema
"""
