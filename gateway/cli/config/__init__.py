"""`exuvia config`.

config_commands  `exuvia config init|check|show`
writing          Writing a new configuration file
"""
