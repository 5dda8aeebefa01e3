"""`exuvia chat`: a terminal client of the websocket protocol.

activity            What runs between a message and its answer, in a few words for the line above the prompt.
answer              An answer that is being written
blocks              Where Markdown that is still being written can be cut
chat_client         `exuvia chat`
client/             The client side of the websocket protocol.
input_history       What a person typed in earlier runs, for the up arrow
keyboard            What a person types or pipes in, as lines, read beside the event loop.
local_commands      What this program does itself; everything else that begins with a slash is the gateway's.
markdown_dialect    The Markdown that is rendered
markdown_rendering  Markdown as lines for a terminal
prompt_ui           A terminal at which a person reads and writes at the same time.
renderer            Where the terminal client writes
repl                One session that is talked to
screen              What `exuvia chat` prints
"""
