"""Running commands: the tools `shell`, `python` and `jobs`.

command_output  The output of a command: what the model is shown, and the file with all of it
command_source  The tools as far as they are enabled and the sandbox suffices
command_tools   The tools
jobs            Commands in the background, and the end of them
network_proxy   The proxy through which commands reach listed hosts
plain_command   Shell text as a plain command, which an approval rule can be about
running         A running command: what it reaches, its output, its deadline, its end
terminal_text   Output as plain text
"""
