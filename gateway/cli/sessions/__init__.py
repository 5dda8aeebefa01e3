"""`exuvia sessions` and `exuvia context`.

compactions       `exuvia sessions compactions`
context           `exuvia context`
fork              `exuvia sessions fork`
session_commands  `exuvia sessions list|show|export|verify|forget`
"""
