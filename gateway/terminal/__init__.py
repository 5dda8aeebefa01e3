"""`exuvia chat`: a terminal client of the websocket protocol.

activity        The progress of messages and turns
chat_client     The entry point of `exuvia chat`
client/         The client side of the websocket protocol
input_line      The history and the completions of the input line
json_page       Answers as lines of JSON, for scripts
keyboard        Lines from standard input, read in a thread
local_commands  `/switch` and `/attach`, the commands of this program
markdown/       Markdown on a terminal
pictures/       Pictures on terminals that can show them
prompt_ui       The interactive prompt below the scrollback
renderer        The output interface, and its plain implementation
repl            The loop of one session: input, messages, events
screen          Printing of events, for a terminal or a pipe
shown_calls     Tool calls: the output of the running one, and finished ones
"""
