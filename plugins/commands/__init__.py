"""The built-in chat commands.

compact          `/compact`, `/compactions` and `/revert`
context_command  `/context`
facts_commands   `/pin`, `/unpin`, `/forget`, `/clear`, `/distill` and `/why`
help             `/help`
history          `/history`
markdown         Escaping of untrusted text in Markdown
model            `/model`
new              `/new` and its alias `/reset`
queue            `/queue`
remember         `/remember` and `/memory`
status           `/status` and `/whoami`
stop             `/stop`
usage            `/usage`
verbose          `/verbose`
"""
