"""The command line.

channels          `exuvia channels list|check|send`, and `exuvia pair`
config_commands   `exuvia config`
context           `exuvia context`
doctor            `exuvia doctor`
main              The entry point and its commands
mcp               `exuvia mcp list|check|login`
mcp_serve         `exuvia mcp serve`
memory/           `exuvia memory`
models            `exuvia models list|refresh`
options           Options, exit codes and JSON output shared by the commands
people/           `exuvia people`, `exuvia approvals`, `exuvia usage`
plugins           `exuvia plugins list|check|new`
sessions/         `exuvia sessions`, `exuvia store`, `exuvia cluster`, `exuvia backup`, `exuvia restore`
skills            `exuvia skills list|add|check`
status            `exuvia status`
"""
