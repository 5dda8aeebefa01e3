"""The built-in slash commands.

compact          `/compact`, `/compactions`, `/revert`
context_command  `/context`
facts_commands   `/pin`, `/unpin`, `/forget`, `/clear`, `/distill` and `/why`
help             `/help`
history          `/history`
markdown         Text of others inside an answer in Markdown
model            `/model`
new              `/new` and `/reset`, the same
queue            `/queue`
remember         `/remember` and `/memory`
status           `/status` and `/whoami`
stop             `/stop`
usage            `/usage`
verbose          `/verbose`
"""
