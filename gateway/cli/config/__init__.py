"""`exuvia config`.

config_commands  `exuvia config init|check|show`.
writing          A first configuration
"""
