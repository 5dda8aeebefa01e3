"""The command line.

config/     `exuvia config`.
doctor      `exuvia doctor`
main        The command line
memory/     `exuvia memory`.
models      `exuvia models list|refresh`
next_steps  What to type next
options     What the commands of the command line share
plugins     `exuvia plugins list|check|new`.
sessions/   `exuvia sessions`.
status      `exuvia status`
"""
