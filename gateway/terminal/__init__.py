"""`exuvia chat`: a terminal client of the websocket protocol.

activity            The current activity, for the line above the prompt
answer              Incremental rendering of a streamed answer
blocks              Splitting incomplete Markdown into top-level blocks
chat_client         The entry point of `exuvia chat`
client/             The client side of the websocket protocol
input_history       The input history file
keyboard            Lines from standard input, read in a thread
local_commands      `/switch` and `/attach`, the commands of this program
markdown_dialect    The Markdown parser
markdown_rendering  Markdown to terminal output
prompt_ui           The interactive prompt below the scrollback
renderer            The output interface, and its plain implementation
repl                The loop of one session: input, messages, events
screen              Printing of events, for a terminal or a pipe
"""
