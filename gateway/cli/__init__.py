"""The command line.

config/    `exuvia config`
doctor     `exuvia doctor`
main       The entry point and its commands
memory/    `exuvia memory`
models     `exuvia models list|refresh`
options    Options and exit codes shared by the commands
plugins    `exuvia plugins list|check|new`
sessions/  `exuvia sessions` and `exuvia context`
status     `exuvia status`
"""
